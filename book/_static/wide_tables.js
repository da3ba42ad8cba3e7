/* A table that would scroll, or that spells verdicts, uses the margin as well: the theme hides the page's contents beside
   it. A table of sentences, and one of words that a phone would cut off, is marked as such, with the names of its columns
   in its cells: on a phone, book.css sets each row as a block. */
(() => {
  const WIDE = "full-width"; // the theme's own class, which it looks for when the page is ready: hence one state earlier
  const room = matchMedia("(min-width: 1200px)"); // below it there is no margin
  const phone = matchMedia("(max-width: 42rem)");
  const SENTENCE = 40; // characters in a cell: more are read, not compared
  let wide = [];

  function mark(table) {
    const heads = [...table.querySelectorAll("thead th")].map((head) => head.textContent.trim());
    const cells = [...table.querySelectorAll("tbody td")].filter((cell) => cell.cellIndex);
    const numbers = table.querySelectorAll("tbody tr:first-child :is(.number, .text-right)");
    const long = cells.some((cell) => cell.textContent.length > SENTENCE);
    const cut = phone.matches && table.offsetWidth > table.parentElement.clientWidth + 1;
    if (heads.length < 3 || numbers.length > 2 || !(long || cut) || table.querySelector(".verdict")) {
      return;
    }
    table.classList.add("prose");
    cells.filter((cell) => heads[cell.cellIndex]).forEach((cell) => {
      cell.dataset.column = heads[cell.cellIndex].replace(/(?<![?:])$/, ":");
    });
  }

  function place() {
    wide.forEach((table) => table.classList.toggle(WIDE, room.matches));
  }

  document.addEventListener("readystatechange", () => {
    if (document.readyState !== "interactive") {
      return;
    }
    document.querySelectorAll(".bd-article table.table").forEach(mark);
    if (!document.querySelector(".bd-sidebar-secondary")) {
      return;
    }
    const cramped = (table) => table.scrollWidth > table.clientWidth + 1 || table.querySelector("td .verdict");
    wide = [...document.querySelectorAll("div.dr-table")].filter(cramped);
    place();
    room.addEventListener("change", place);
  });
})();
