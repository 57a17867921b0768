// What the adapters on Node.js share: the same as in agent.py.
import { performance } from "node:perf_hooks";

export class Unsupported extends Error {}

export class Watch {
  constructor(seconds, most) {
    this.n = 0;
    this.took = [];
    this.most = most ?? Infinity;
    this.started = this.last = performance.now();
    this.end = this.started + seconds * 1e3;
  }
  step(n) {
    const now = performance.now();
    this.took.push(now - this.last);
    this.last = now;
    this.n += n;
  }
  get goesOn() {
    return this.last < this.end && this.n < this.most;
  }
  result() {
    return { n: this.n, wall_s: (this.last - this.started) / 1e3, ...quantiles(this.took) };
  }
}

export function quantiles(milliseconds) {
  if (!milliseconds.length) return {};
  const ordered = [...milliseconds].sort((a, b) => a - b);
  const at = (share) => ordered[Math.floor(share * (ordered.length - 1))];
  return { p50_ms: at(0.5), p99_ms: at(0.99) };
}

export const body = (i) => ({
  order: i, customer: `customer-${String(i % 1000).padStart(4, "0")}`, total: "129.95", currency: "EUR",
});

export class Countdown {
  constructor(n) {
    this.n = this.left = n;
    this.done = new Promise((resolve) => (this.resolve = resolve));
  }
  count() {
    if (this.left === this.n) this.first = performance.now();
    if (--this.left > 0) return;
    this.last = performance.now();
    this.resolve();
  }
  result(note) {
    return { n: this.n, wall_s: (this.last - this.first) / 1e3, note };
  }
}

export class Lateness {
  constructor(n) {
    this.n = n;
    this.due = new Map();
    this.late = [];
    this.done = new Promise((resolve) => (this.resolve = resolve));
  }
  handled(i) {
    const now = performance.now();
    this.late.push(Math.max(0, now - (this.due.get(i) ?? now)));
    if (this.late.length === this.n) this.resolve();
  }
  async send(offer, n, everySeconds) {
    for (let i = 0; i < n; i++) {
      await offer(i);
      this.due.set(i, performance.now());
      await new Promise((resolve) => setTimeout(resolve, everySeconds * 1e3));
    }
  }
  result() {
    return { n: this.late.length, wall_s: 0, ...quantiles(this.late) };
  }
}
