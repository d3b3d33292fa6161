// The list of cases. Only the rows in sight are drawn, so that thousands cost as little as ten.

import { el } from "./dom.js";

const ROW = 64, MARGIN = 6;                        // px of a row, as in the style sheet; rows drawn beyond what is seen

export class Queue {
  // open(row): somebody chose a row. A row: { number, id, state, why, lost }.
  constructor(box, open) {
    Object.assign(this, { box, open, rows: [], current: -1, focused: 0 });
    this.above = el("li", { "aria-hidden": "true" });
    this.below = el("li", { "aria-hidden": "true" });
    this.list = el("ol", { onkeydown: event => this.move(event) });
    box.replaceChildren(this.list);
    box.addEventListener("scroll", () => { this.soon ??= requestAnimationFrame(() => { this.soon = null; this.draw(); }); });
    new ResizeObserver(() => this.draw()).observe(box);
  }

  show(rows, current) {
    const at = rows.findIndex(row => row.number === current), moved = current !== this.current || rows.length !== this.rows.length;
    Object.assign(this, { rows, current });
    if (moved) this.reveal(Math.max(0, at));
    this.draw();
  }

  reveal(place) {
    this.focused = place;
    const top = place * ROW, bottom = top + ROW - this.box.clientHeight;
    if (this.box.scrollTop > top) this.box.scrollTop = top;
    else if (this.box.scrollTop < bottom) this.box.scrollTop = bottom;
  }

  draw() {
    const first = Math.max(0, Math.floor(this.box.scrollTop / ROW) - MARGIN);
    const last = Math.min(this.rows.length, Math.ceil((this.box.scrollTop + this.box.clientHeight) / ROW) + MARGIN);
    const drawn = JSON.stringify([first, this.rows.slice(first, last), this.rows.length, this.current, this.focused]);
    if (drawn === this.drawn) return;              // a row that is not replaced can be clicked
    this.drawn = drawn;
    const held = this.list.contains(document.activeElement);
    this.above.style.height = `${first * ROW}px`;
    this.below.style.height = `${Math.max(0, this.rows.length - last) * ROW}px`;
    this.list.replaceChildren(this.above, ...this.rows.slice(first, last).map((row, i) => this.item(row, first + i)), this.below);
    if (held) this.list.querySelector("[tabindex='0']")?.focus({ preventScroll: true });
  }

  item(row, place) {
    return el("li", { "aria-setsize": this.rows.length, "aria-posinset": place + 1 },
      el("button", { "aria-current": row.number === this.current && "true", tabindex: place === this.focused ? 0 : -1,
        onclick: () => { this.focused = place; this.open(row); } },
        el("span", { class: "first" }, el("bdi", {}, row.id), el("span", { class: row.lost ? "lost" : "mute" }, row.state)),
        el("small", { dir: "auto" }, row.why)));
  }

  move(event) {                                    // arrows move, Enter or Space opens
    const step = { ArrowDown: 1, ArrowUp: -1, PageDown: 10, PageUp: -10, Home: -Infinity, End: Infinity }[event.key];
    if (!step) return;
    event.preventDefault();
    this.reveal(Math.min(this.rows.length - 1, Math.max(0, this.focused + step)));
    this.draw();
    this.list.querySelector("[tabindex='0']")?.focus({ preventScroll: true });
  }
}
