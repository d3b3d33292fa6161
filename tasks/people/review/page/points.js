// Points as they are typed, read against the scores that there are: exactly one of these, or none.

const NUMBER = /^([-−]?)(\d*)(?:([.,])(\d*))?$/;
const parts = text => {                            // without the zeros that change nothing; null for what is no number
  const [, minus, whole, point, part = ""] = NUMBER.exec(text) ?? [];
  return minus === undefined ? null : { minus: minus !== "", whole: whole.replace(/^0+/, ""), point, part };
};
const shortened = part => part.replace(/0+$/, "");
const isZero = number => number.whole + shortened(number.part) === "";

// What a text says on a scale. values: its scores as votes name them, lowest first.
// value: the score, null for none; mayBecome: whether it is a score, or the beginning of one; why: what to tell where it is none.
export function readPoints(text, values) {
  const typed = text.trim(), number = parts(typed);
  if (!number) return { value: null, mayBecome: false, why: `“${typed}” is not a number.` };
  const isOfSign = one => one.minus === number.minus || isZero(one);
  const fits = one => isOfSign(one) && (number.point
    ? one.whole === number.whole && one.part.padEnd(number.part.length, "0").startsWith(number.part)
    : one.whole.startsWith(number.whole));
  const says = one => isOfSign(one) && one.whole === number.whole && one.part === shortened(number.part);
  const digits = /\d/.test(typed), sign = number.minus ? "-" : "", value = digits ? values.find(one => says(parts(one))) ?? null : null;
  const thousands = number.whole && /^\d\d0$/.test(number.part) && values.includes(sign + number.whole + number.part);
  if (value !== null && thousands) {               // 1.000 on a scale that goes to 1000
    return { value: null, mayBecome: false, why: `${typed} can mean ${value} or ${sign + number.whole + number.part}: type it without the sign in it.` };
  }
  const why = digits ? `${typed} is not on this scale; nearest: ${nearest(number, values).join(" and ")}.` : "Type a number.";
  return { value, mayBecome: values.some(one => fits(parts(one))), why: value === null ? why : null };
}

function nearest(number, values) {                 // the scores below and above
  const at = (number.minus ? -1 : 1) * Number(`0${number.whole}.${number.part}0`);
  return [values.findLast(one => Number(one) <= at), values.find(one => Number(one) >= at)].filter(one => one !== undefined);
}

// The score a step above (by = 1) or below (by = -1) what is typed or, where nothing is, `from`; at the ends it stays.
export function stepped(text, values, by, from) {
  const { value } = readPoints(text, values), number = parts(text.trim()), start = value ?? (text.trim() ? null : from);
  if (start !== null) return values[Math.min(values.length - 1, Math.max(0, values.indexOf(start) + by))];
  if (!number || !/\d/.test(text)) return by > 0 ? values[0] : values.at(-1);
  const around = nearest(number, values);
  return by > 0 ? around.at(-1) : around[0];
}

// The scores of a scale in words: 0 to 4 by 0.5.
export function ofScale(values) {
  const step = Math.round(1e9 * (Number(values[1]) - Number(values[0]))) / 1e9;
  return `${values[0]} to ${values.at(-1)}${step === 1 ? "" : ` by ${step}`}`;
}
