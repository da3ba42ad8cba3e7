/* The filter of the page of all claims: plain, without a library, and from a file too; controls.js keeps what is chosen in the
   address. No comment to the end of a line here, since the page has it on one line. */
{
  const form = document.currentScript.previousElementSibling;
  const rows = () => [...document.querySelectorAll("[data-claim]")].map((one) => [one, JSON.parse(one.dataset.claim)]);
  const choose = () => {
    const chosen = [...new FormData(form)].filter(([, value]) => value);
    let shown = 0;
    const all = rows();
    for (const [row, facts] of all) {
      row.hidden = !chosen.every(([name, value]) => facts[name] === value);
      shown += row.hidden ? 0 : 1;
    }
    form.querySelector("output").textContent = `${shown} of ${all.length} claims`;
  };
  form.hidden = false;
  form.addEventListener("change", choose);
  form.addEventListener("submit", (event) => event.preventDefault());
  /* A link to a claim shows it, open, whatever is chosen. */
  const reveal = () => {
    const row = document.getElementById(location.hash.slice(1));
    if (!row?.dataset.claim) return;
    row.open = true;
    if (row.hidden) {
      row.hidden = false;
      row.scrollIntoView();
    }
  };
  addEventListener("hashchange", reveal);
  document.addEventListener("DOMContentLoaded", choose);
  /* After Back the browser chooses again what was chosen, late and without telling. */
  addEventListener("pageshow", () => {
    choose();
    reveal();
  });
}
