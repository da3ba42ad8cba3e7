/* On the page of search results: what kind of page each hit is, read from its address. Nothing is fetched. */
(() => {
  const KINDS = [
    [/^notebooks\/lessons\//, "lesson"], [/^notebooks\//, "notebook"], [/^ideas\//, "idea"], [/^papers\//, "paper"],
    [/^practice\//, "practice"], [/^teaching\//, "teaching"], [/^reference\/api/, "library"], [/^_modules\//, "source"],
    [/^reference\//, "reference"],
  ];

  function label(hit) {
    const link = hit.querySelector("a[href]");
    if (!link || hit.querySelector(".dr-kind")) return;
    const kind = KINDS.find(([pattern]) => pattern.test(link.getAttribute("href")));
    const shown = document.createElement("span");
    shown.className = "dr-kind";
    shown.textContent = kind ? kind[1] : "page";
    hit.prepend(shown);
  }

  document.addEventListener("DOMContentLoaded", () => {
    const results = document.getElementById("search-results");
    if (!results) return;
    const all = () => results.querySelectorAll("li").forEach(label);
    new MutationObserver(all).observe(results, { childList: true, subtree: true });
    all();
  });
})();
