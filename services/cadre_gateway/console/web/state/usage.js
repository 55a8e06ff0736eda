// What statistics of the gateway make of a time: columns, and a series for each agent or model. No clock, no DOM.

const MINUTE = 60;
const HOUR = 3600;
const DAY = 24 * HOUR;
const SERIES = 5; // the others are summed up in one more

/** The times that people choose of: what the gateway is asked for, and the seconds of one column. */
export const SPANS = {
  hour: { words: "60 minutes", by: "minute", count: 60, seconds: MINUTE },
  day: { words: "24 hours", by: "hour", count: 24, seconds: HOUR },
  week: { words: "7 days", by: "day", count: 7, seconds: DAY },
  month: { words: "30 days", by: "day", count: 30, seconds: DAY },
};

/** The columns of a span that ends at `now` (Unix seconds), the oldest first: `{key, begin, end}`; `key` is the gateway's. */
export function columns(span, now) {
  const { by, count, seconds } = SPANS[span];
  const last = Math.floor(now / seconds) * seconds;
  return Array.from({ length: count }, (_, place) => {
    const begin = last - (count - 1 - place) * seconds;
    const written = new Date(begin * 1000).toISOString();
    return { key: by === "day" ? written.slice(0, 10) : `${written.slice(0, 16)}Z`, begin, end: begin + seconds };
  });
}

/** The values of `field` for each column, from rows by time alone. */
export function valuesOf(rows, by, cols, field) {
  const found = new Map(rows.map((row) => [row[by], row]));
  return cols.map(({ key }) => found.get(key)?.[field] ?? null);
}

/**
 * A series for each value of `name`, the largest first and the small ones in one, from rows by time and `name`; `measure`
 * gives what counts of a row.
 */
export function seriesOf(rows, by, name, cols, measure) {
  const sums = new Map();
  for (const row of rows) if (row[name]) sums.set(row[name], (sums.get(row[name]) ?? 0) + measure(row));
  const names = [...sums].filter(([, sum]) => sum > 0).sort(([a, x], [b, y]) => y - x || (a < b ? -1 : 1)).map(([one]) => one);
  const own = names.slice(0, SERIES);
  const place = new Map(cols.map(({ key }, at) => [key, at]));
  const series = new Map(own.map((one) => [one, cols.map(() => 0)]));
  const rest = cols.map(() => 0);
  for (const row of rows) {
    const at = place.get(row[by]);
    if (at === undefined || !row[name]) continue;
    (series.get(row[name]) ?? rest)[at] += measure(row);
  }
  const found = [...series].map(([one, values]) => ({ name: one, values }));
  return names.length > SERIES ? [...found, { name: `${names.length - SERIES} others`, values: rest, isRest: true }] : found;
}
