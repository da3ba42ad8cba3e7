/* Below every table of numbers: the same table as CSV and as LaTeX, made in the page itself, so that no server is needed. */
(() => {
  const INTERVAL = /^([+-]?[\d.]+) \[([^,]+), ([^\]]+)\]$/;
  const words = (cell) => cell.textContent.replace(/\s+/g, " ").trim().replace(/^–$/, "").replace(/[−‑]/g, "-");
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
