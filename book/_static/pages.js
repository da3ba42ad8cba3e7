/* What every page of the book can do: an offer to predict, one switch for code, tables to take along, and tables on narrow
   screens. Each part looks for what it needs and does nothing without it. */

/* "Predict, then look": an offer in one folded line. With ?predict in the address, which a teacher may hand out, what follows
   is shown when the reader has answered, or does not want to. The question is in the page as text (book/_ext/predictions.py);
   here it becomes a form. */
(() => {
  const KEY = `predicted:${location.pathname}`;
  const node = (tag, attributes, ...children) => {
    const made = Object.assign(document.createElement(tag), attributes);
    made.append(...children);
    return made;
  };
  const stored = (work) => {  // from a disk some browsers keep nothing
    try {
      return work();
    } catch {
      return null;
    }
  };

  /* "1st of 4 in the paper, 3rd of 4 in the book's records" */
  function placed({ dataset }, count) {
    const spell = (place, of) => `${place}${["th", "st", "nd", "rd"][place] || "th"} of ${of}`;
    const parts = [["paper", "the paper"], ["records", "the book’s records"]].filter(([name]) => dataset[name]);
    return parts.map(([name, where]) => `${spell(dataset[name], count(name))} in ${where}`).join(", ");
  }

  function ask(place) {
    const [, question, list, outcome] = place.children, options = [...list.children];
    const said = node("p", { className: "said", tabIndex: -1 });
    said.setAttribute("role", "status");
    const look = (text) => {
      place.classList.replace("waiting", "answered") || place.classList.add("answered");
      outcome.open = true;
      form.remove();
      said.textContent = text;
    };
    const answered = (number) => {
      const option = options[number], found = placed(option, (name) => options.filter((one) => one.dataset[name]).length);
      look(`You chose ${option.querySelector("strong").textContent}${found && `: ${found}`}.`);
    };
    const choices = options.map((option, i) => node("label", {}, node("input", { type: "radio", name: "prediction", value: i, required: true }),
      node("span", {}, ...option.cloneNode(true).childNodes)));
    const form = node("form", {
      onsubmit: (event) => {
        event.preventDefault();
        const chosen = new FormData(form).get("prediction");
        stored(() => localStorage.setItem(KEY, chosen));
        answered(Number(chosen));
        said.focus();
      },
    }, node("fieldset", {}, node("legend", {}, ...question.cloneNode(true).childNodes), ...choices),
    node("button", { type: "submit" }, "Show what came out"),
    node("button", { type: "button", className: "skip", onclick: () => { look(""); outcome.firstChild.focus(); } }, "Show it without a prediction"));
    place.append(form, said);
    place.classList.add("asked");
    if (new URLSearchParams(location.search).has("predict")) {
      place.open = true;
      place.classList.add("waiting");
    }
    const before = stored(() => localStorage.getItem(KEY));
    if (before !== null && options[before]) answered(Number(before));
    // Who follows a link to a part of the page wants to see it.
    const follow = () => place.classList.contains("waiting") && look("");
    if (location.hash) follow();
    addEventListener("hashchange", () => {
      follow();
      document.querySelector(":target")?.scrollIntoView();
    });
  }

  addEventListener("DOMContentLoaded", () => document.querySelectorAll(".dr-predict").forEach(ask));
})();

/* Paper is white: a page in the dark theme is printed in the light one. */
(() => {
  const { dataset } = document.documentElement;
  let shown;
  addEventListener("beforeprint", () => {
    shown = dataset.theme;
    dataset.theme = "light";
  });
  addEventListener("afterprint", () => { dataset.theme = shown; });
})();

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

/* Below every table of numbers: the same table as CSV and as LaTeX, made in the page itself, so that no server is needed. */
(() => {
  const INTERVAL = /^([+-]?[\d.]+) \[([^,]+), ([^\]]+)\]$/;
  const words = (cell) => cell.textContent.replace(/\u00ad/g, "").replace(/\s+/g, " ").trim().replace(/^–$/, "").replace(/[−‑]/g, "-");
  const lines = (table) => [...table.querySelectorAll("tr")].map((row) => [...row.cells].map(words));

  /** Values with an interval become three columns: mean, low, high. */
  function csv(table) {
    const [head, ...rows] = lines(table);
    const split = head.map((_, i) => rows.some((row) => INTERVAL.test(row[i])));
    const spread = (row, parts) => row.flatMap((cell, i) => (split[i] ? parts(cell) : [cell]));
    const bounds = (cell) => (INTERVAL.exec(cell) || ["", cell, "", ""]).slice(1);
    const all = [spread(head, (name) => [name, `${name}, low`, `${name}, high`]), ...rows.map((row) => spread(row, bounds))];
    const quoted = (cell) => (/[",\n]/.test(cell) ? `"${cell.replaceAll('"', '""')}"` : cell);
    return all.map((row) => row.map(quoted).join(",")).join("\r\n") + "\r\n";
  }

  /** For the package booktabs. */
  function latex(table) {
    const safe = (cell) =>
      cell.replace(/\\/g, "\0").replace(/[&%$#_{}]/g, "\\$&").replace(/~/g, "\\textasciitilde{}").replace(/\^/g, "\\textasciicircum{}")
        .replace(/\0/g, "\\textbackslash{}").replace(INTERVAL, "$1 {\\small [$2, $3]}");
    const [head, ...rows] = lines(table).map((row) => `  ${row.map(safe).join(" & ")} \\\\`);
    const kinds = [...table.querySelectorAll("th")].map((cell) => (cell.classList.contains("number") ? "r" : "l")).join("");
    const caption = safe(words(table.caption));
    return ["\\begin{table}", `\\caption{${caption}}`, `\\begin{tabular}{${kinds}}`, "  \\toprule", head, "  \\midrule", ...rows,
      "  \\bottomrule", "\\end{tabular}", "\\end{table}", ""].join("\n");
  }

  function offer(table, number) {
    const line = document.createElement("p");
    line.className = "dr-files";
    const page = location.pathname.split("/").pop().replace(/\.html$/, "");
    for (const [name, ending, make] of [["CSV", "csv", csv], ["LaTeX", "tex", latex]]) {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = name;
      button.setAttribute("aria-label", `Save this table as ${name}`);
      button.addEventListener("click", () => {
        const link = document.createElement("a");
        link.href = URL.createObjectURL(new Blob([make(table)], { type: "text/plain" }));
        link.download = `${page}-${number + 1}.${ending}`;
        link.click();
        setTimeout(() => URL.revokeObjectURL(link.href), 1000);
      });
      line.append(button);
    }
    table.closest(".dr-table").after(line);
  }

  window.takeAlong = { csv, latex };
  document.addEventListener("DOMContentLoaded", () => {
    [...document.querySelectorAll(".dr-table table:has(caption):has(td.number)")].forEach(offer);
  });
})();

/* A table that would scroll, that spells verdicts or whose cells are squeezed uses the margin as well: the theme hides the
   page's contents beside it. What does not fit on a phone takes another form there, which book.css sets. A table of
   sentences, one of few numbers or rows or more words that would be cut off, and one of two columns that would be cut off or
   squeezed are marked "prose": each row is a block, each cell has its column's name. Of a table of numbers, or of yes and no, that would
   be cut off, or whose names would be squeezed, "stacked" puts each name in a line of its own above its numbers, and below
   them what a column of words says. Where one line is too narrow for the numbers they take two or three, as their heads do;
   every other line has a ground of its own, so that a number finds its head. What does not fit even so scrolls, with its
   names in view. */
(() => {
  const WIDE = "full-width"; // the theme's own class, which it looks for when the page is ready: hence one state earlier
  const room = matchMedia("(min-width: 1200px)"); // below it there is no margin
  const phone = matchMedia("(max-width: 42rem)");
  const SENTENCE = 40; // characters in a cell: more are read, not compared
  const WORDS = 14; // characters: longer words do not stand beside numbers
  const LINES = 2.5; // lines of a name: more are squeezed
  const FEW = 3; // rows: so few are read one by one
  const TALL = 6.5; // lines of any other cell on a wide page
  const FORMS = ["prose", "stacked", "scrolls"];
  let wide = [];

  const isNumber = (head) => head.matches(".number, .text-right");
  const numerous = (heads) => heads.filter(isNumber).length > (heads.length - 1) / 2;
  const text = (cell) => cell.textContent.trim();

  /* Gives the cells of some columns their column's name. */
  function label(cells, heads) {
    for (const cell of cells.filter((one) => text(heads[one.cellIndex]))) {
      cell.dataset.column = text(heads[cell.cellIndex]).replace(/(?<![?:])$/, ":");
    }
  }

  function squeezed(cell, lines = LINES) {
    const range = document.createRange();
    range.selectNodeContents(cell);
    return range.getBoundingClientRect().height > lines * parseFloat(getComputedStyle(cell).lineHeight);
  }

  /* Tries the form with names above numbers, in one line or in as few as are needed; false where it does not fit. */
  function stack(table, heads, cells) {
    const across = heads.map((head, i) => !isNumber(head) && cells.some((cell) => cell.cellIndex === i && text(cell).length > WORDS));
    const long = [...heads, ...cells].filter((cell) => cell.cellIndex && across[cell.cellIndex]);
    const places = across.flatMap((one, i) => (i && !one ? [i] : []));
    long.forEach((cell) => cell.classList.add("across"));
    table.classList.add("stacked");
    const fits = (numerous(heads) ? [1, 2, 3] : [1]).some((lines) => {
      const columns = Math.ceil(places.length / lines);
      table.style.setProperty("--columns", columns);
      [...heads, ...cells].forEach((cell) => {
        cell.classList.toggle("second", Math.floor(places.indexOf(cell.cellIndex) / columns) === 1);
      });
      return table.scrollWidth <= table.parentElement.clientWidth + 1;
    });
    if (!fits) {
      table.classList.remove("stacked");
      long.forEach((cell) => cell.classList.remove("across"));
      [...heads, ...cells].forEach((cell) => cell.classList.remove("second"));
      return false;
    }
    label(long.filter((cell) => cell.matches("td")), heads);
    return true;
  }

  function mark(table) {
    const heads = [...table.querySelectorAll("thead th")];
    const least = heads.some(isNumber) ? 3 : 2;
    if (heads.length < least || FORMS.some((form) => table.classList.contains(form)) || table.querySelector(".verdict")) {
      return;
    }
    const cells = [...table.querySelectorAll("tbody td")].filter((cell) => cell.cellIndex);
    const names = [...table.querySelectorAll("tbody td:first-child")];
    const numbers = heads.filter(isNumber).length;
    const prose = () => {
      table.classList.add("prose");
      const facts = heads.length === 2 && text(heads[1]) === "value"; // what a property has, everybody sees
      table.classList.toggle("facts", facts);
      label(facts ? [] : isNumber(heads[0]) ? [...names, ...cells] : cells, heads);
    };
    if (heads.length > 2 && numbers < 3 && cells.some((cell) => text(cell).length > SENTENCE)) {
      prose();
    } else if (phone.matches && table.offsetWidth) { // what is folded is looked at when it opens
      const cut = table.offsetWidth > table.parentElement.clientWidth + 1;
      const brief = heads.length > 2 && cells.every((cell) => text(cell).length <= WORDS); // such as yes and no
      const named = (numbers || brief) && !isNumber(heads[0]);
      if (named && (cut || names.some((name) => squeezed(name))) && stack(table, heads, cells)) {
        return;
      }
      if (cut && (numbers < 3 || !numerous(heads) || table.tBodies[0].rows.length <= FEW)) {
        prose();
      } else if (numbers < 3 && heads.length === 2 && names.some((name) => squeezed(name))) {
        prose();
      } else if (cut) {
        table.classList.add("scrolls");
      }
    }
  }

  function place() {
    wide.forEach((table) => table.classList.toggle(WIDE, room.matches));
  }

  document.addEventListener("readystatechange", () => {
    if (document.readyState !== "interactive") {
      return;
    }
    const resized = new ResizeObserver((entries) => entries.forEach((entry) => mark(entry.target)));
    document.querySelectorAll(".bd-article table.table").forEach((table) => {
      mark(table);
      resized.observe(table);
    });
    if (!document.querySelector(".bd-sidebar-secondary")) {
      return;
    }
    const cramped = (table) =>
      table.scrollWidth > table.clientWidth + 1 ||
      table.querySelector("td .verdict") ||
      (room.matches && [...table.querySelectorAll("td")].some((cell) => squeezed(cell, TALL)));
    const tables = [...document.querySelectorAll("div.dr-table")];
    const widths = (width) => tables.forEach((table) => (table.style.width = width)); // all at once: one layout, not one a table
    widths("95%"); // the book's letters may load after this, and be wider than those it is measured with
    wide = tables.filter(cramped);
    widths("");
    place();
    room.addEventListener("change", place);
  });
})();

/* What scrolls sideways can be reached by keyboard: tables, drawings and formulas, as long as they are wider than their place. */
document.addEventListener("DOMContentLoaded", () => {
  const places = ".dr-table, .dr-drawing.wide, .formula, .pst-scrollable-table-container";
  const name = (place) => (place.querySelector("caption, title, annotation")?.textContent || "wide").trim();
  const reach = (place) => {
    const marks = { tabindex: "0", role: "group", "aria-label": name(place) };
    const scrolls = place.scrollWidth > place.clientWidth + 1;
    Object.entries(marks).forEach(([mark, value]) => (scrolls ? place.setAttribute(mark, value) : place.removeAttribute(mark)));
  };
  const resized = new ResizeObserver((entries) => entries.forEach(({ target }) => reach(target.closest(places))));
  document.querySelectorAll(places).forEach((place) => [place, ...place.children].forEach((part) => resized.observe(part)));
});
