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
      document.getElementById(decodeURIComponent(location.hash.slice(1)))?.scrollIntoView();
    });
  }

  addEventListener("DOMContentLoaded", () => document.querySelectorAll(".dr-predict").forEach(ask));
})();
