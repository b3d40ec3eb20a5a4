"use strict";
// Tables that sort and filter, numbers that unfold, marks of figures that tell their value.
(function () {
  const data = JSON.parse(document.getElementById("formulas").textContent);
  const place = new Map(data.keys.map((key, at) => [key, at]));
  const word = (at) => data.words[at];

  function element(name, text, parent) {
    const made = document.createElement(name);
    if (text) made.textContent = text;
    if (parent) parent.append(made);
    return made;
  }

  // ---- numbers unfold
  function item(at) {
    const [label, value, range, formula, status, source, follows, inputs] = data.items[at];
    return { label: word(label), value: word(value), range: word(range), formula: word(formula),
      status: word(status), source: word(source), follows, inputs };
  }

  function term(list, name, text) {
    if (!text) return;
    element("dt", name, list);
    element("dd", text, list);
  }

  function listed(box, title, places) {
    if (!places.length) return;
    element("div", title, box);
    const list = element("ul", "", box);
    list.tabIndex = 0;
    list.setAttribute("aria-label", title);
    for (const at of places) {
      const one = item(at);
      const line = element("li", "", list);
      if (one.follows.length || one.inputs.length) {
        const button = element("button", `${one.label} = ${one.value}`, line);
        button.type = "button";
        button.className = "why";
        button.dataset.key = data.keys[at];
        button.setAttribute("aria-expanded", "false");
      } else {
        const range = one.range ? ` [${one.range}]` : "";
        element("span", `${one.label} = ${one.value}${range}; ${one.status}: ${one.source}`, line);
      }
    }
  }

  function origin(at) {
    const one = item(at);
    const box = element("div");
    box.className = "origin";
    element("strong", one.value ? `${one.label} = ${one.value}` : one.label, box);
    const list = element("dl", "", box);
    term(list, "Formula", one.formula);
    term(list, "Range", one.range);
    term(list, "Status", one.status);
    term(list, "Source", one.source);
    listed(box, "Follows from", one.follows);
    listed(box, "Parameters that enter it", one.inputs);
    return box;
  }

  function unfold(button) {
    const open = button.getAttribute("aria-expanded") === "true";
    button.setAttribute("aria-expanded", String(!open));
    if (open) {
      document.getElementById(button.getAttribute("aria-controls")).remove();
      button.removeAttribute("aria-controls");
      return;
    }
    let shown = origin(place.get(button.dataset.key));
    const row = button.closest("tr");
    const nested = button.closest(".origin");
    if (row && !nested) {
      const line = element("tr");
      const cell = element("td", "", line);
      cell.colSpan = row.cells.length;
      cell.append(shown);
      line.className = "unfolded";
      row.after(line);
      shown = line;
    } else {
      button.after(shown);
    }
    shown.id = `origin${(unfold.count = (unfold.count || 0) + 1)}`;
    button.setAttribute("aria-controls", shown.id);
  }

  // ---- tables sort and filter
  const rowsOf = (table) => [...table.tBodies[0].rows].filter((row) => row.className !== "unfolded");

  function folded(table) {
    for (const button of table.querySelectorAll('.why[aria-expanded="true"]')) {
      if (!button.closest(".origin")) unfold(button);
    }
  }

  function sort(button) {
    const head = button.closest("th");
    const table = button.closest("table");
    const column = head.cellIndex;
    const down = head.getAttribute("aria-sort") === "ascending";
    folded(table);
    for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    const value = (row) => row.cells[column].dataset.value;
    const order = (one, two) => {
      const [a, b] = [value(one), value(two)];
      if (a !== undefined && b !== undefined) return a - b;
      if (a !== b) return a === undefined ? 1 : -1;  // what has no number stands last
      return one.cells[column].textContent.localeCompare(two.cells[column].textContent);
    };
    const sorted = rowsOf(table).sort((one, two) => (down ? -order(one, two) : order(one, two)));
    if (down) sorted.sort((one, two) => (value(one) === undefined) - (value(two) === undefined));
    table.tBodies[0].append(...sorted);
  }

  function filter(field) {
    const table = document.getElementById(field.dataset.filter);
    const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
    folded(table);
    let shown = 0;
    for (const row of rowsOf(table)) {
      const text = row.textContent.toLowerCase();
      row.hidden = !words.every((one) => text.includes(one));
      shown += row.hidden ? 0 : 1;
    }
    const all = rowsOf(table).length;
    const count = document.querySelector(`[data-count="${field.dataset.filter}"]`);
    count.textContent = shown === all ? `${all} rows` : `${shown} of ${all} rows`;
  }

  // ---- marks of figures tell their value
  const tip = document.getElementById("tip");

  function tell(mark) {
    tip.textContent = mark.dataset.tip;
    tip.hidden = false;
    const box = mark.getBoundingClientRect();
    const left = Math.min(Math.max(4, box.left + box.width / 2 - tip.offsetWidth / 2), innerWidth - tip.offsetWidth - 4);
    const above = box.top - tip.offsetHeight - 8;
    tip.style.left = `${left}px`;
    tip.style.top = `${above > 4 ? above : box.bottom + 8}px`;
  }

  for (const svg of document.querySelectorAll("svg")) {
    const marks = [...svg.querySelectorAll(".mark")];
    marks.forEach((mark, at) => {
      mark.setAttribute("tabindex", at ? "-1" : "0");
      mark.addEventListener("pointerenter", () => tell(mark));
      mark.addEventListener("pointerleave", () => { tip.hidden = true; });
      mark.addEventListener("focus", () => tell(mark));
      mark.addEventListener("blur", () => { tip.hidden = true; });
    });
    svg.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
      const at = marks.indexOf(document.activeElement);
      if (event.key === "Escape") tip.hidden = true;
      if (!step || at < 0) return;
      const next = marks[(at + step + marks.length) % marks.length];
      marks[at].setAttribute("tabindex", "-1");
      next.setAttribute("tabindex", "0");
      next.focus();
      event.preventDefault();
    });
  }

  document.addEventListener("click", (event) => {
    const why = event.target.closest(".why");
    if (why) unfold(why);
    const head = event.target.closest(".sort");
    if (head) sort(head);
  });
  document.addEventListener("input", (event) => {
    if (event.target.dataset.filter) filter(event.target);
  });
})();
