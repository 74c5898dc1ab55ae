'use strict';

// How things are written. Names come from clients, and files from anywhere: what would not be seen
// or would turn its surroundings around, control characters and marks of direction, is written as
// a code.
function visible(text) {
  return text.replace(
      /[\p{Cc}\p{Cf}\p{Co}\p{Cs}\p{Zl}\p{Zp}]/gu,
      (character) => `\\u{${character.codePointAt(0).toString(16)}}`);
}

function count(number) {
  return number.toLocaleString('en');
}

function plural(number, word) {
  return `${count(number)} ${word}${number === 1 ? '' : word.endsWith('ch') ? 'es' : 's'}`;
}

function duration(ns) {
  const digits = (value) => value.toFixed(value >= 100 ? 1 : value >= 10 ? 2 : 3);
  if (ns < 0) return `-${duration(-ns)}`;
  if (ns < 1e3) return `${Math.round(ns)} ns`;
  if (ns < 1e6) return `${digits(ns / 1e3)} us`;
  if (ns < 1e9) return `${digits(ns / 1e6)} ms`;
  return `${digits(ns / 1e9)} s`;
}

// A moment of the trace, to the microsecond or to `step` nanoseconds.
function moment(ns, step = 1e3) {
  return `${(ns / 1e6).toFixed(Math.max(0, Math.ceil(6 - Math.log10(step))))} ms`;
}

// An argument's name and value as one reads them: "ready to launched, us", 12.5.
function argument(name, value) {
  if (typeof value === 'string') return [visible(name), visible(value)];
  if (name.endsWith(', us')) return [visible(name.slice(0, -4)), duration(value * 1e3)];
  return [visible(name), name === 'plan' ? String(value) : count(value)];
}

// A new element with this text. Never markup: whatever the text is, it is shown.
function element(name, text = '', attributes = {}) {
  const made = document.createElement(name);
  made.textContent = text;
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}
