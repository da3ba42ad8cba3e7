/* A table that would scroll, or that spells verdicts, uses the margin as well: the theme hides the page's contents beside it. */
(() => {
  const WIDE = "full-width"; // the theme's own class, which it looks for when the page is ready: hence one state earlier
  const room = matchMedia("(min-width: 1200px)"); // below it there is no margin
  let wide = [];

  function place() {
    wide.forEach((table) => table.classList.toggle(WIDE, room.matches));
  }

  document.addEventListener("readystatechange", () => {
    if (document.readyState !== "interactive" || !document.querySelector(".bd-sidebar-secondary")) {
      return;
    }
    const cramped = (table) => table.scrollWidth > table.clientWidth + 1 || table.querySelector("td .verdict");
    wide = [...document.querySelectorAll("div.dr-table")].filter(cramped);
    place();
    room.addEventListener("change", place);
  });
})();
