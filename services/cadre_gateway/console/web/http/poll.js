// Asks again and again, as long as somebody looks.

/**
 * Calls `work(signal)` now and `seconds` after it was done, not while the tab is hidden. `onError` gets what went wrong,
 * null when it works. Returns what ends it, with `now()` to ask at once.
 */
export function poll(seconds, work, onError = () => {}) {
  let over = false;
  let timer = null;
  let current = null;

  async function turn() {
    clearTimeout(timer);
    current?.abort();
    const mine = (current = new AbortController());
    try {
      await work(mine.signal);
      if (current === mine && !over) onError(null);
    } catch (error) {
      if (error.name === "AbortError" || over || current !== mine) return;
      onError(error);
    }
    if (current === mine && !over && !document.hidden) timer = setTimeout(turn, seconds * 1000);
  }

  const seen = () => {
    if (!document.hidden && !over) turn();
    else clearTimeout(timer);
  };
  document.addEventListener("visibilitychange", seen);
  turn();
  const stop = () => {
    over = true;
    clearTimeout(timer);
    current?.abort();
    document.removeEventListener("visibilitychange", seen);
  };
  stop.now = turn;
  return stop;
}
