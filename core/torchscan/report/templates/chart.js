// The picture: an icicle of the executed calls. A view is a call, or a run of calls too narrow to be told apart before.

const NARROWEST = 3; // pixels of a call that is drawn on its own
const RUN = 26; // pixels after which a run of narrower calls ends
const COLOURS = 8;

class Chart {
  constructor(element, { onSelect, onZoom }) {
    this.element = element;
    this.onSelect = onSelect;
    this.onZoom = onZoom;
    this.matches = null;
    this.sectors = [];
    this.drawn = false;
    element.addEventListener("keydown", (event) => this.key(event));
  }

  /** Show another report or metric; the view stays where the new report has it. */
  show(model, metric, view = { row: 0, run: null }, selected = view.row) {
    this.model = model;
    this.metric = metric;
    this.sizes = model.sizes(metric);
    this.view = view;
    this.selected = { row: selected, run: null };
    this.draw();
  }

  get levels() { return this.element.clientWidth < 600 ? 5 : 8; }

  /** Return what is drawn: the view's root, then level by level. */
  layout() {
    const { model, sizes, view } = this;
    const width = this.element.clientWidth || 600;
    const root = { id: "root", parent: "", value: 1, row: view.row, run: view.run, level: 0, left: 0 };
    const sectors = [root];
    const zeros = [];
    for (let at = 0; at < sectors.length; at += 1) {
      const above = sectors[at];
      if (above.run && at > 0) continue;
      const rows = above.run ?? model.children[above.row];
      if (above.level + 1 >= this.levels) {
        above.deeper = rows.length > 0;
        continue;
      }
      const scale = above.run ? 1 / above.run.reduce((sum, row) => sum + sizes.share[row], 0) : 1;
      let left = above.left;
      let run = null;
      const put = (sector) => {
        sectors.push({ parent: above.id, level: above.level + 1, ...sector });
      };
      for (const row of rows) {
        const share = sizes.share[row] * scale;
        // A hair less than the whole, so that rounding never makes children wider than their parent.
        const value = above.value * share * 0.999999;
        if (value === 0) {
          zeros.push(row);
          continue;
        }
        if (value * width >= NARROWEST) {
          run = null;
          put({ id: `c${row}`, row, run: null, value, left });
        } else if (run && run.value * width < RUN) {
          run.run.push(row);
          run.value += value;
        } else {
          put({ id: `r${row}`, row: above.row, run: [row], value, left });
          run = sectors[sectors.length - 1];
        }
        left += value;
      }
    }
    return { sectors, zeros };
  }

  draw() {
    const note = document.getElementById("chart-note");
    if (!this.sizes || !this.model.length) {
      this.sectors = [];
      Plotly.purge(this.element);
      this.drawn = false;
      note.textContent = this.sizes ? "The report holds no calls." : "This scan was not asked for this metric.";
      return;
    }
    const { sectors, zeros } = this.layout();
    this.sectors = sectors;
    note.textContent = this.note(zeros);
    const style = this.style();
    const trace = {
      type: "icicle",
      ids: sectors.map((sector) => sector.id),
      parents: sectors.map((sector) => sector.parent),
      values: sectors.map((sector) => sector.value),
      labels: sectors.map((sector) => this.sectorText(sector)),
      text: sectors.map((sector) => this.sectorText(sector)),
      textinfo: "text",
      hovertext: sectors.map((sector) => this.hover(sector)),
      hoverinfo: "text",
      branchvalues: "total",
      sort: false,
      tiling: { orientation: "v", pad: 1 },
      pathbar: { visible: false },
      marker: this.marker(style),
      textfont: { size: 12, color: style.ink, family: style.family },
      leaf: { opacity: 1 },
      root: { color: style.composite },
    };
    const layout = {
      margin: { l: 0, r: 0, t: 0, b: 0 },
      paper_bgcolor: "rgba(0,0,0,0)",
      hoverlabel: { bgcolor: style.paper, bordercolor: style.line, font: { color: style.ink, family: style.family } },
      uniformtext: { minsize: 9, mode: "hide" },
      width: this.element.clientWidth,
      height: this.element.clientHeight,
    };
    Plotly.react(this.element, [trace], layout, { displayModeBar: false, showTips: false });
    // Paper is narrower than the screen: with a view box the style sheet can scale the drawing.
    const { width, height } = layout;
    this.element.querySelectorAll("svg.main-svg").forEach((svg) => svg.setAttribute("viewBox", `0 0 ${width} ${height}`));
    this.element.style.setProperty("--ratio", String(width / height));
    if (!this.drawn) {
      this.drawn = true;
      // Zooming is this page's: plotly's own would animate and know nothing of runs.
      this.element.on("plotly_icicleclick", (event) => {
        const sector = this.sectors.find((one) => one.id === event.points[0].id);
        if (sector) this.zoom(sector);
        return false;
      });
    }
  }

  style() {
    const read = getComputedStyle(document.documentElement);
    const value = (property) => read.getPropertyValue(property).trim();
    return {
      ink: value("--ink"),
      paper: value("--paper"),
      line: value("--sector-line"),
      focus: value("--focus"),
      hatch: value("--hatch"),
      composite: value("--composite"),
      other: value("--other"),
      dim: value("--dim"),
      covered: value("--covered"),
      family: value("--family"),
      types: Array.from({ length: COLOURS }, (_, number) => value(`--type-${number}`)),
    };
  }

  marker(style = this.style()) {
    const { sectors } = this;
    const colours = sectors.map((sector) => this.colour(sector, style));
    const line = (sector) => this.isSelected(sector) ? style.focus : style.line;
    const width = (sector) => this.isSelected(sector) ? 3 : this.isMatch(sector) ? 2 : 0.75;
    return {
      colors: colours,
      line: { color: sectors.map(line), width: sectors.map(width) },
      pattern: {
        shape: sectors.map((sector) => this.pattern(sector)),
        fillmode: "overlay",
        fgcolor: sectors.map(() => style.hatch),
        size: 7,
        solidity: sectors.map((sector) => (this.standing(sector).own ? 0.2 : 0.07)),
      },
    };
  }

  /** Return the standing that a sector shows; of a run, what its calls have in common. `own`: it is its own doing. */
  standing(sector) {
    const { own, total } = this.sizes;
    const rows = sector.run ?? [sector.row];
    const letters = new Set(rows.map((row) => total[row]));
    const open = letters.has("u") || letters.has("p");
    const letter = letters.size === 1 ? [...letters][0] : open ? "p" : "c";
    return { letter, own: rows.some((row) => own[row] === "u" || own[row] === "p") };
  }

  pattern(sector) {
    const { letter } = this.standing(sector);
    return { u: "x", p: "/", o: "." }[letter] ?? "";
  }

  colour(sector, style) {
    if (this.matches && !this.isMatch(sector)) return style.dim;
    const { letter } = this.standing(sector);
    if (letter === "o") return style.covered;
    if (sector.run) return style.other;
    const { own, ownNumber } = this.sizes;
    const idle = own[sector.row] === "-" || own[sector.row] === "u" || Number(ownNumber[sector.row]) === 0;
    if (idle && this.model.children[sector.row].length) return style.composite;
    const number = typeColours.get(this.model.columns.type[sector.row]);
    return number === undefined ? style.other : style.types[number];
  }

  isMatch(sector) {
    return this.matches !== null && (sector.run ?? [sector.row]).some((row) => this.matches.has(row));
  }

  isSelected(sector) {
    if (this.selected.run) return sector.run !== null && sector.run[0] === this.selected.run[0];
    return sector.run === null && sector.row === this.selected.row;
  }

  sectorName(sector) {
    if (sector.run) return `${sector.run.length} calls`;
    return sector.level ? this.model.shortTitle(sector.row) : this.model.title(sector.row);
  }

  sectorText(sector) {
    const pixels = sector.value * this.element.clientWidth;
    const room = Math.floor((pixels - 8) / 6.8);
    const whole = this.sectorName(sector) + (sector.deeper ? " ▾" : "");
    if (room < 4 && whole.length > room) return "";
    const label = escaped(shortened(whole, room));
    if (sector.run) return label;
    const { total, totalNumber } = this.sizes;
    if (total[sector.row] === "o") return label;
    const number = measured(total[sector.row], totalNumber[sector.row]);
    return number.length <= room ? `${label}<br>${number}` : label;
  }

  hover(sector) {
    const unit = metrics.get(this.metric).unit;
    if (sector.run) {
      return `${sector.run.length} calls, too narrow to draw one by one<br>Click to see them`;
    }
    const { row } = sector;
    const { total, totalNumber } = this.sizes;
    const owner = this.sizes.owner[row];
    const state = owner === undefined
      ? escaped(measuredInFull(total[row], totalNumber[row], unit))
      : `inside the estimate of ${escaped(shortened(this.model.title(owner), 60))}`;
    // No bold: plotly writes it as a style attribute, which the policy refuses.
    return `${escaped(shortened(this.model.title(row), 90))}<br>${escaped(shortened(this.model.type(row), 90))}<br>${state}`;
  }

  note(zeros) {
    const { total, totalNumber } = this.sizes;
    const root = this.view.row;
    const parts = [];
    if (total[root] === "u") parts.push("Nothing is known here: widths only say that there is work.");
    else if (total[root] !== "o" && Number(totalNumber[root]) === 0) parts.push("The known work here is zero.");
    if (zeros.length) {
      const silent = zeros.filter((row) => total[row] === "c").length;
      if (silent) parts.push(`${silent} ${silent === 1 ? "call" : "calls"} of exactly 0 not drawn; the table has them.`);
    }
    return parts.join(" ");
  }

  /** Make one sector the selection, and say so. */
  select(sector) {
    this.selected = { row: sector.row, run: sector.run };
    if (this.drawn) {
      const { line } = this.marker();
      Plotly.restyle(this.element, { "marker.line.color": [line.color], "marker.line.width": [line.width] }, [0]);
    }
    this.onSelect(this.selected);
  }

  /** Show `sector` as the whole picture; the root of the view goes one step out. */
  zoom(sector) {
    if (sector.level === 0) return this.out();
    const target = { row: sector.row, run: sector.run };
    if (!sector.run && !this.model.children[sector.row].length) return this.select(sector);
    return this.go(target);
  }

  go(view) {
    this.view = view;
    this.selected = { row: view.row, run: view.run };
    this.draw();
    this.onZoom(view);
    this.onSelect(this.selected);
  }

  out() {
    const { view } = this;
    if (view.run) return this.go({ row: view.row, run: null });
    const parent = this.model.parent(view.row);
    if (parent < 0) return undefined;
    this.go({ row: parent, run: null });
    const left = this.sectors.find((sector) => !sector.run && sector.row === view.row);
    return left && this.select(left);
  }

  mark(matches) {
    this.matches = matches;
    if (!this.drawn) return;
    const { colors, line } = this.marker();
    Plotly.restyle(this.element, {
      "marker.colors": [colors], "marker.line.color": [line.color], "marker.line.width": [line.width],
    }, [0]);
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || !this.sectors.length) return;
    const at = this.sectors.find((sector) => this.isSelected(sector)) ?? this.sectors[0];
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (step) {
      const level = this.sectors.filter((sector) => sector.level === at.level);
      const next = level[level.indexOf(at) + step];
      if (next) this.select(next);
    } else if (event.key === "ArrowDown") {
      const child = this.sectors.find((sector) => sector.parent === at.id);
      if (child) this.select(child);
    } else if (event.key === "ArrowUp") {
      const parent = this.sectors.find((sector) => sector.id === at.parent);
      if (parent) this.select(parent);
      else this.out();
    } else if (event.key === "Enter" || event.key === " ") {
      if (at.level) this.zoom(at);
    } else if (event.key === "Escape" || event.key === "Backspace") {
      this.out();
    } else if (event.key === "Home") {
      this.go({ row: 0, run: null });
    } else {
      return;
    }
    event.preventDefault();
  }
}

/** Return text that plotly shows as it is; plotly reads a few tags and entities. */
function escaped(value) {
  return value.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
}

/** Give a colour to the types that matter most in any metric, the same in every picture of the page. */
const typeColours = (() => {
  const weight = new Map();
  for (const model of models) {
    for (const { key, asked } of page.metrics) {
      const whole = asked ? model.whole(key) : 0;
      if (!whole) continue;
      const { own, ownNumber } = model.sizes(key);
      const sums = new Map();
      model.columns.type.forEach((type, row) => {
        if (own[row] === "c" || own[row] === "p") sums.set(type, (sums.get(type) ?? 0) + Number(ownNumber[row]) / whole);
      });
      sums.forEach((sum, type) => weight.set(type, Math.max(weight.get(type) ?? 0, sum)));
    }
  }
  const ranked = [...weight].filter(([, sum]) => sum > 0).sort((a, b) => b[1] - a[1]).slice(0, COLOURS);
  return new Map(ranked.map(([type], number) => [type, number]));
})();
