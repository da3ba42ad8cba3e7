/* The filter of the page of all claims: plain, without a library, and from a file too. No comment to the end of a line here,
   since the page has it on one line. */
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
  for (const [name, value] of new URLSearchParams(location.search)) {
    if (form.elements[name]) form.elements[name].value = value;
  }
  form.hidden = false;
  form.addEventListener("change", choose);
  form.addEventListener("submit", (event) => event.preventDefault());
  document.addEventListener("DOMContentLoaded", choose);
}
