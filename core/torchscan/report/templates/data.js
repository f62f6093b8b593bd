"use strict";

// The report as the page's scripts see it: the columns of the data block, with numbers and names made readable.

const page = JSON.parse(document.getElementById("report-data").textContent);
const text = (number) => page.texts[number];
const PREFIXES = ["", " k", " M", " G", " T", " P", " E", " Z", " Y", " R", " Q"];

/** Return a number (or the digits of one beyond 2**53) with three significant digits: "1.23 G"; `down` never rounds up. */
function si(number, down = false) {
  const given = String(number);
  if (Number(number) < 1000) return given.includes(".") ? String(Number(Number(number).toPrecision(3))) : given;
  const digits = /^\d+$/.test(given) ? given : BigInt(Math.floor(Number(number))).toString();
  let leading = Number(digits.slice(0, 3)) + (!down && digits[3] >= "5" ? 1 : 0);
  let length = digits.length;
  if (leading === 1000) {
    leading = 100;
    length += 1;
  }
  const power = Math.floor((length - 1) / 3);
  const point = (length - 1) % 3 + 1;
  if (power >= PREFIXES.length) return `${leading / 100}e${length - 1}`;
  const shown = String(leading);
  return (point < 3 ? `${shown.slice(0, point)}.${shown.slice(point)}` : shown) + PREFIXES[power];
}

/** Return a number in full, its digits in groups of three. */
function exact(number) {
  const [whole, rest] = String(number).split(".");
  return whole.replace(/\B(?=(\d{3})+$)/g, ",") + (rest ? `.${rest}` : "");
}

/** Return the beginning and the end of a long text, in at most `length` characters. */
function shortened(value, length) {
  if (value.length <= length) return value;
  if (length < 2) return length < 1 ? "" : "…";
  const end = Math.floor((length - 1) / 3);
  return value.slice(0, length - 1 - end) + "…" + (end ? value.slice(value.length - end) : "");
}

/** Return a standing in short: c complete, p lower bound, u unavailable, o covered by an owner, - nothing of its own. */
function measured(letter, number) {
  if (letter === "c") return si(number);
  if (letter === "p") return `≥ ${si(number, true)}`;
  return letter === "u" ? "?" : "–";
}

/** Return a standing in full, for people who hover or listen. */
function measuredInFull(letter, number, unit) {
  if (letter === "c") return `${exact(number)} ${unit}`;
  if (letter === "p") return `at least ${exact(number)} ${unit} (a lower bound)`;
  if (letter === "u") return "unknown, which is not zero";
  return letter === "o" ? "inside the estimate of another call" : "nothing of its own";
}

/** One report: rows are calls, and every question about them is answered by row number. */
class Model {
  constructor(columns) {
    this.columns = columns;
    this.length = columns.parent.length;
    this.failed = new Set(columns.failed);
    this.shared = new Set(columns.shared);
    this.children = Array.from({ length: this.length }, () => []);
    this.depth = new Array(this.length).fill(0);
    columns.parent.forEach((parent, row) => {
      if (parent < 0) return;
      this.children[parent].push(row);
      this.depth[row] = this.depth[parent] + 1;
    });
    this.haystack = null;
  }

  parent(row) { return this.columns.parent[row]; }
  path(row) { return text(this.columns.path[row]); }
  type(row) { return text(this.columns.type[row]); }
  label(row) { return text(this.columns.label[row]); }
  index(row) { return this.columns.index[row]; }
  sizes(metric) { return this.columns.sizes[metric]; }

  /** Return the path for people; the root's is its type, and a later call of the same path says which it is. */
  title(row) {
    const path = this.path(row) || this.type(row);
    return this.index(row) ? `${path} (call ${this.index(row) + 1})` : path;
  }

  /** Return the part of the title that its place in the tree does not say already. */
  shortTitle(row) {
    const above = this.parent(row) < 0 ? "" : `${this.path(this.parent(row))}.`;
    const title = this.title(row);
    return above.length > 1 && title.startsWith(above) ? title.slice(above.length) : title;
  }

  /** Return the rows from the root down to `row`. */
  line(row) {
    const rows = [];
    for (let at = row; at >= 0; at = this.parent(at)) rows.unshift(at);
    return rows;
  }

  /** Return the rows whose path or type holds `wanted`, in order. */
  search(wanted) {
    if (!this.haystack) {
      this.haystack = this.columns.path.map((path, row) => `${text(path)}\n${this.type(row)}`.toLowerCase());
    }
    const needle = wanted.toLowerCase();
    const found = [];
    this.haystack.forEach((hay, row) => { if (hay.includes(needle)) found.push(row); });
    return found;
  }

  /** Return the known part of everything below the root, as a number. */
  whole(metric) {
    const sizes = this.sizes(metric);
    return sizes && this.length ? Number(sizes.totalNumber[0] ?? 0) : 0;
  }
}

const models = page.reports.map((columns) => new Model(columns));
const metrics = new Map(page.metrics.map((metric) => [metric.key, metric]));

/** Return a new element with attributes and children; text children stay text. */
function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined && value !== false) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children);
  return element;
}

/** Return a foreign name in its own direction, cut to `length` with the whole of it as the title. */
function name(value, length = 90) {
  const short = shortened(value, length);
  return make("bdi", short === value ? {} : { title: value }, short);
}
