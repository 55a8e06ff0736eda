// A list that does not move while somebody reads it: what is new waits until they ask for it. Pure.

/**
 * `shown` is what the list shows, `waiting` what is new above or between that. An item is known by its `id`; one that has
 * left the list while it was held stays in its place and is `gone`.
 */
export class HeldList {
  shown = [];
  waiting = [];

  /** How many items to ask for, so that all that is shown is in the answer again. */
  limit(page) {
    return Math.min(Math.max(page, this.shown.length + this.waiting.length), 1000);
  }

  /** Takes the list as it is now; `hold`: whether somebody reads it. */
  take(fresh, hold) {
    if (!hold || !this.shown.length) {
      this.shown = fresh;
      this.waiting = [];
      return;
    }
    const now = new Map(fresh.map((one) => [one.id, one]));
    const known = new Set(this.shown.map(({ id }) => id));
    const last = fresh.findLastIndex(({ id }) => known.has(id));
    this.shown = this.shown.map((one) => now.get(one.id) ?? { ...one, gone: true });
    this.waiting = fresh.slice(0, last < 0 ? fresh.length : last).filter(({ id }) => !known.has(id));
  }
}
