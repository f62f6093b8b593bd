// The table of calls, a page of rows at a time.

const PAGE = 100;
const COUNTED = ["parameters", "macs", "module_flops", "dmas"];

class Table {
  constructor(element, { onSelect }) {
    this.element = element;
    this.body = element.querySelector("tbody");
    this.status = document.getElementById("table-status");
    this.onSelect = onSelect;
    this.order = { column: "order", down: false };
    this.at = 0;
    this.found = null;
    element.querySelectorAll("button[data-sort]").forEach((head) => {
      head.addEventListener("click", () => this.sort(head.dataset.sort));
    });
    document.getElementById("table-back").addEventListener("click", () => this.turn(-1));
    document.getElementById("table-on").addEventListener("click", () => this.turn(1));
  }

  show(model, metric) {
    this.model = model;
    this.metric = metric;
    this.at = 0;
    this.arrange();
  }

  filter(found) {
    this.found = found;
    this.at = 0;
    this.arrange();
  }

  sort(column) {
    const down = this.order.column === column ? !this.order.down : column !== "order" && column !== "type";
    this.order = { column, down };
    this.at = 0;
    this.arrange();
  }

  arrange() {
    const { model, order } = this;
    const rows = this.found ? [...this.found] : Array.from({ length: model.length }, (_, row) => row);
    if (order.column === "type") {
      rows.sort((a, b) => model.type(a).localeCompare(model.type(b)) || a - b);
      if (order.down) rows.reverse();
    } else if (order.column !== "order") {
      // What is known comes by size; what is not known comes together, before the calls without anything of their own.
      const sizes = model.sizes(order.column);
      const rank = (row) => !sizes || "o-".includes(sizes.own[row]) ? 2 : sizes.own[row] === "u" ? 1 : 0;
      const number = (row) => (sizes ? Number(sizes.ownNumber[row] ?? 0) : 0);
      const sign = order.down ? -1 : 1;
      rows.sort((a, b) => rank(a) - rank(b) || sign * (number(a) - number(b)) || a - b);
    } else if (order.down) {
      rows.reverse();
    }
    this.rows = rows;
    this.element.querySelectorAll("th").forEach((head) => {
      const column = head.querySelector("button")?.dataset.sort;
      if (!column) return;
      if (column === order.column) head.setAttribute("aria-sort", order.down ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
    });
    this.write();
  }

  turn(step) {
    this.at = Math.max(0, Math.min(this.at + step * PAGE, this.rows.length - 1));
    this.write();
    this.element.scrollIntoView({ block: "start" });
  }

  /** Turn to the page that holds `row`, and put the focus on it. */
  reveal(row) {
    let place = this.rows.indexOf(row);
    if (place < 0) {
      this.found = null;
      this.arrange();
      place = this.rows.indexOf(row);
    }
    this.at = place - place % PAGE;
    this.write();
    const line = this.body.querySelector(`tr[data-row="${row}"]`);
    this.choose(row);
    line.scrollIntoView({ block: "center" });
    line.querySelector("button").focus({ preventScroll: true });
  }

  choose(row) {
    this.chosen = row;
    this.body.querySelectorAll("tr").forEach((line) => {
      line.classList.toggle("chosen", Number(line.dataset.row) === row);
    });
  }

  write() {
    const rows = this.rows.slice(this.at, this.at + PAGE);
    this.body.replaceChildren(...rows.map((row) => this.line(row)));
    const last = this.at + rows.length;
    const of = this.found ? `${this.rows.length} matching of ${this.model.length}` : String(this.model.length);
    this.status.textContent = rows.length ? `Calls ${this.at + 1}–${last} of ${of}` : "No call matches.";
    document.getElementById("table-back").disabled = this.at === 0;
    document.getElementById("table-on").disabled = last >= this.rows.length;
  }

  line(row) {
    const { model } = this;
    const { columns } = model;
    const line = make("tr", { "data-row": row, class: row === this.chosen ? "chosen" : null });
    const call = button("", () => { this.choose(row); this.onSelect(row); });
    call.className = "call";
    // In execution order the indentation says the beginning of the path.
    const tree = this.order.column === "order" && !this.order.down && !this.found;
    call.append(name(tree ? model.shortTitle(row) : model.title(row), 64));
    if (tree) call.title = shortened(model.title(row), 300);
    const indent = tree ? Math.min(model.depth[row], 8) : 0;
    const head = make("th", { scope: "row", class: `depth-${indent}` }, call);
    if (model.failed.has(row)) head.append(" ", make("span", { class: "alert" }, "failed"));
    line.append(head, make("td", {}, name(model.type(row), 40)), make("td", { class: "shape" }, name(text(columns.output[row]), 48)));
    for (const key of COUNTED) line.append(this.number(key, row));
    line.append(this.part(row), make("td", { class: "tokens" }, columns.tokens[row] ? name(text(columns.tokens[row][0]), 32) : ""));
    return line;
  }

  number(key, row) {
    const sizes = this.model.sizes(key);
    if (!sizes) return make("td", { class: "number quiet", title: "not requested" }, "–");
    const own = sizes.own[row];
    const { unit } = metrics.get(key);
    if (own === "o") {
      const owner = sizes.owner[row];
      const title = owner === undefined ? "inside the estimate of another call" : `inside the estimate of ${this.model.title(owner)}`;
      return make("td", { class: "number covered", title: shortened(title, 300) }, "↑ in owner");
    }
    if (own === "-") {
      if (!this.model.children[row].length) return make("td", { class: "number quiet", title: "no estimate" }, "–");
      const sum = measured(sizes.total[row], sizes.totalNumber[row]);
      const title = `the calls inside: ${measuredInFull(sizes.total[row], sizes.totalNumber[row], unit)}`;
      return make("td", { class: "number sum", title }, `Σ ${sum}`);
    }
    const kind = { c: "", p: " bound", u: " unknown" }[own];
    const number = sizes.ownNumber[row];
    return make("td", { class: `number${kind}`, title: measuredInFull(own, number, unit) }, measured(own, number));
  }

  /** Return the call's part of what is known of the chosen metric, everything inside it included. */
  part(row) {
    const sizes = this.model.sizes(this.metric);
    const whole = this.model.whole(this.metric);
    const letter = sizes ? sizes.total[row] : "-";
    if (!whole || (letter !== "c" && letter !== "p")) return make("td", { class: "part" });
    const part = Number(sizes.totalNumber[row]) / whole;
    const bar = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    bar.setAttribute("viewBox", "0 0 100 8");
    bar.setAttribute("preserveAspectRatio", "none");
    bar.setAttribute("aria-hidden", "true");
    const rect = document.createElementNS("http://www.w3.org/2000/svg", "rect");
    rect.setAttribute("width", String(100 * Math.min(part, 1)));
    rect.setAttribute("height", "8");
    bar.append(rect);
    return make("td", { class: "part" }, bar, make("span", {}, `${(100 * part).toFixed(1)} %`));
  }
}
