/* One switch a page for its code: the folded cells (book/_ext/table_pages.py) are hidden until the reader wants them, and open
   then. Without this script each has a line of its own. */
addEventListener("DOMContentLoaded", () => {
  const cells = [...document.querySelectorAll(".bd-article details.hide.above-input")];
  const links = document.querySelector(".bd-article .dr-files");
  if (!cells.length || !links) return;
  const button = document.createElement("button");
  const show = (shown) => {
    document.documentElement.classList.toggle("dr-no-code", !shown);
    cells.forEach((cell) => { cell.open = shown; });
    button.textContent = shown ? "Hide code" : "Show code";
    button.setAttribute("aria-pressed", shown);
  };
  button.type = "button";
  button.onclick = () => show(document.documentElement.classList.contains("dr-no-code"));
  links.append(" ", button);
  show(false);
});
