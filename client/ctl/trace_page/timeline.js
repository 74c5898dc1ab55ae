'use strict';

// Draws the trace: a row for each track, and the part of time that is looked at. What a picture
// takes is bounded by the pixels, not by the slices: of each row only slices that are seen are
// visited, and of those within one pixel only the first.
class Timeline {
  constructor(trace, canvas, scroller, spacer) {
    Object.assign(this, {trace, canvas, scroller, spacer});
    this.context = canvas.getContext('2d');
    this.selected = -1;
    this.found = null;  // as Trace.find
    this.shown = [];    // by track: the slices found; null: all of them
    this.onDraw = () => {};
    this.readStyle();
    this.arrange();
    this.showAll();
    scroller.addEventListener('scroll', () => this.draw());
    new ResizeObserver(() => this.draw()).observe(scroller);
    matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => {
      this.readStyle();
      this.draw();
    });
  }

  readStyle() {
    const style = getComputedStyle(this.canvas);
    const color = (name) => style.getPropertyValue(`--${name}`).trim();
    this.colors = {};
    const names = ['back', 'band', 'line', 'text', 'faint', 'accent', 'slice-text', 'failed'];
    for (const name of names) {
      this.colors[name] = color(name);
    }
    this.kindColors = Trace.KINDS.map((_, i) => color(`kind-${i}`));
    this.font = style.font;
    this.context.font = this.font;
    this.letterWidth = this.context.measureText('m').width;  // of every letter: it is monospaced
  }

  // GPUs first, then sessions, each by number, with their lanes and queues below them. Tracks on
  // which nothing is found have no row.
  arrange() {
    const {tracks} = this.trace;
    const compare = new Intl.Collator('en', {numeric: true}).compare;
    const sort = (list) => list.sort((a, b) => compare(tracks[a].name, tracks[b].name));
    const children = tracks.map(() => []);
    const roots = [];
    tracks.forEach(({parent}, track) => (parent < 0 ? roots : children[parent]).push(track));
    this.rows = [];
    this.rowOf = new Int32Array(tracks.length).fill(-1);
    let y = Timeline.RULER;
    const add = (track, height, isGroup) => {
      this.rowOf[track] = this.rows.length;
      this.rows.push({track, y, height, isGroup});
      y += height;
    };
    const isSeen = (track) =>
      children[track].some(isSeen) || (this.shown[track]?.length ?? tracks[track].count) > 0;
    const addAll = (track) => {
      if (!isSeen(track)) return;
      add(track, children[track].length > 0 ? Timeline.GROUP : Timeline.ROW,
          children[track].length > 0);
      sort(children[track]).forEach(addAll);
    };
    const isGpu = (track) => tracks[track].name.startsWith('GPU ');
    sort(roots.filter(isGpu)).forEach(addAll);
    sort(roots.filter((track) => !isGpu(track))).forEach(addAll);
    this.height = y;
  }

  show(found) {
    this.found = found;
    this.shown = this.trace.tracks.map(({first, count}) => {
      if (found === null) return null;
      const shown = [];
      for (let slice = first; slice < first + count; ++slice) {
        if (found[slice]) shown.push(slice);
      }
      return Uint32Array.from(shown);
    });
    this.arrange();
    this.draw();
  }

  // ---- What is looked at

  get width() {
    return Math.max(1, this.canvas.clientWidth - Timeline.LABELS);
  }

  look(from, to) {
    const all = Math.max(this.trace.duration, Timeline.LEAST_NS) * 1.04;
    const span = Math.min(Math.max(to - from, Timeline.LEAST_NS), all);
    const middle = (from + to) / 2;
    this.from = Math.min(Math.max(middle - span / 2, -all * 0.02), all * 0.98 - span);
    this.to = this.from + span;
    this.draw();
  }

  showAll() {
    this.look(0, this.trace.duration);
  }

  // `at`: what stays where it is.
  zoom(factor, at = (this.from + this.to) / 2) {
    this.look(at - (at - this.from) * factor, at + (this.to - at) * factor);
  }

  // By this part of what is seen.
  move(part) {
    const by = (this.to - this.from) * part;
    this.look(this.from + by, this.to + by);
  }

  showSlice(slice) {
    const {begin, end} = this.trace;
    const length = Math.max(end[slice] - begin[slice], Timeline.LEAST_NS / 4);
    this.look(begin[slice] - length, end[slice] + length);
    this.scrollTo(slice);
  }

  scrollTo(slice) {
    const row = this.rows[this.rowOf[this.trace.track[slice]]];
    if (row === undefined) return;
    const top = row.y - this.scroller.scrollTop;
    if (top < Timeline.RULER || top + row.height > this.canvas.clientHeight) {
      this.scroller.scrollTop = row.y - this.canvas.clientHeight / 2;
    }
  }

  timeAt(x) {
    return this.from + (x - Timeline.LABELS) / this.width * (this.to - this.from);
  }

  xAt(time) {
    return Timeline.LABELS + (time - this.from) / (this.to - this.from) * this.width;
  }

  // The slice at this place of the canvas, or one that is at most three pixels beside it; -1: none.
  sliceAt(x, y) {
    if (x < Timeline.LABELS || y < Timeline.RULER) return -1;
    const row = this.rowAt(y + this.scroller.scrollTop);
    if (row < 0 || this.rows[row].isGroup) return -1;
    const {track} = this.rows[row];
    const first = this.firstEndingBehind(track, this.timeAt(x));
    let best = -1, distance = 3;
    for (const place of [first - 1, first]) {
      const slice = this.sliceOf(track, place);
      if (slice < 0) continue;
      const {begin, end} = this.trace;
      const far = Math.max(this.xAt(begin[slice]) - x, x - this.xAt(end[slice]));
      if (far <= distance) [best, distance] = [slice, far];
    }
    return best;
  }

  // The one so many places behind `slice` on its track, among those found.
  neighbour(slice, step) {
    const track = this.trace.track[slice];
    const {first} = this.trace.tracks[track];
    const shown = this.shown[track] ?? null;
    const place = shown === null ? slice - first : shown.indexOf(slice);
    return this.sliceOf(track, place + step);
  }

  // Of the slices shown of a track, that at this place; -1: there is none.
  sliceOf(track, place) {
    if (place < 0 || place >= this.countOf(track)) return -1;
    return this.shown[track]?.[place] ?? this.trace.tracks[track].first + place;
  }

  countOf(track) {
    return this.shown[track]?.length ?? this.trace.tracks[track].count;
  }

  firstEndingBehind(track, time, low = 0) {
    return Timeline.search(low, this.countOf(track),
                           (place) => this.trace.end[this.sliceOf(track, place)] > time);
  }

  // The row at y, counted from the first row's top; -1: none.
  rowAt(y) {
    const row = Timeline.search(0, this.rows.length, (i) => this.rows[i].y > y) - 1;
    return row >= 0 && y < this.rows[row].y + this.rows[row].height ? row : -1;
  }

  // The first of [low, high) for which `holds`, which then holds for all behind it; else `high`.
  static search(low, high, holds) {
    while (low < high) {
      const middle = (low + high) >>> 1;
      if (holds(middle)) high = middle;
      else low = middle + 1;
    }
    return low;
  }

  // ---- Drawing

  // With the browser's next frame, however often it is asked for until then.
  draw() {
    this.frame ??= requestAnimationFrame(() => {
      this.frame = undefined;
      this.drawNow();
      this.onDraw();
    });
  }

  drawNow() {
    const height = this.scroller.clientHeight;
    this.canvas.style.height = `${height}px`;
    this.spacer.style.height = `${Math.max(0, this.height - height)}px`;
    const scale = devicePixelRatio;
    const [pixels, lines] = [this.canvas.clientWidth * scale, height * scale].map(Math.round);
    if (this.canvas.width !== pixels) this.canvas.width = pixels;
    if (this.canvas.height !== lines) this.canvas.height = lines;
    const {context, colors} = this;
    context.setTransform(scale, 0, 0, scale, 0, 0);
    context.font = this.font;
    context.textBaseline = 'middle';
    context.fillStyle = colors.back;
    context.fillRect(0, 0, this.canvas.clientWidth, height);
    this.drawGrid(height);
    const top = this.scroller.scrollTop;
    const behind = Timeline.search(0, this.rows.length, (i) => this.rows[i].y > top);
    for (const row of this.rows.slice(Math.max(0, behind - 1))) {
      if (row.y >= top + height) break;
      this.drawRow(row, row.y - top);
    }
    this.drawArrows(top);
    this.drawRuler();
  }

  drawRow({track, height, isGroup}, y) {
    const {context, colors} = this;
    context.fillStyle = isGroup ? colors.band : colors.line;
    if (isGroup) context.fillRect(0, y, this.canvas.clientWidth, height);
    else context.fillRect(0, y + height - 0.5, this.canvas.clientWidth, 0.5);
    this.drawSlices(track, y + 1, height - 3);
    context.fillStyle = isGroup ? colors.band : colors.back;
    context.fillRect(0, y, Timeline.LABELS, height - 1);
    const label = visible(this.trace.tracks[track].name);
    const indent = isGroup ? 8 : 20;
    const room = isGroup ? this.canvas.clientWidth : Timeline.LABELS;
    context.fillStyle = isGroup ? colors.text : colors.faint;
    context.fillText(this.cut(label, room - indent - 4), indent, y + height / 2);
  }

  cut(text, width) {
    const letters = Math.floor(width / this.letterWidth);
    return text.length <= letters ? text : `${text.slice(0, Math.max(0, letters - 1))}…`;
  }

  drawSlices(track, y, height) {
    const {trace, context} = this;
    const nsPerPixel = (this.to - this.from) / this.width;
    const total = this.countOf(track);
    const right = this.canvas.clientWidth;
    let place = this.firstEndingBehind(track, this.from);
    while (place < total) {
      const slice = this.sliceOf(track, place);
      if (trace.begin[slice] >= this.to) break;
      const from = Math.max(this.xAt(trace.begin[slice]), Timeline.LABELS);
      const to = Math.min(this.xAt(trace.end[slice]), right);
      context.fillStyle = this.colorOf(slice);
      if (to - from < 1) {  // it, and all others that end within its pixel
        const pixel = Math.floor(from);
        context.fillRect(pixel, y, 1, height);
        const behind = this.from + (pixel + 1 - Timeline.LABELS) * nsPerPixel;
        place = Math.max(place + 1, this.firstEndingBehind(track, behind, place));
      } else {
        context.fillRect(from, y, Math.max(1, to - from - 0.5), height);
        this.nameSlice(slice, from, to, y + height / 2);
        ++place;
      }
      if (slice === this.selected) this.frameSlice(from, to, y, height);
    }
  }

  colorOf(slice) {
    const name = this.trace.name[slice];
    return this.trace.failedName[name] ? this.colors.failed :
                                         this.kindColors[this.trace.colorOfName[name]];
  }

  nameSlice(slice, from, to, y) {
    if (to - from < 4 * this.letterWidth) return;
    this.context.fillStyle = this.colors['slice-text'];
    const name = visible(this.trace.strings[this.trace.name[slice]]);
    this.context.fillText(this.cut(name, to - from - 6), from + 3, y);
  }

  frameSlice(from, to, y, height) {
    this.context.strokeStyle = this.colors.accent;
    this.context.lineWidth = 2;
    this.context.strokeRect(from, y, Math.max(2, to - from), height);
  }

  // Round times, far enough from each other to be named, and how far.
  ticks() {
    const least = (this.to - this.from) / this.width * 90;
    const power = 10 ** Math.floor(Math.log10(least));
    const step = power * [1, 2, 5, 10].find((factor) => factor * power >= least);
    const first = Math.ceil(this.from / step);
    const count = Math.floor(this.to / step) - first + 1;
    return {step, times: Array.from({length: count}, (_, i) => (first + i) * step)};
  }

  drawGrid(height) {
    this.context.fillStyle = this.colors.line;
    for (const time of this.ticks().times) this.context.fillRect(this.xAt(time), 0, 1, height);
  }

  drawRuler() {
    const {context, colors} = this;
    context.fillStyle = colors.band;
    context.fillRect(0, 0, this.canvas.clientWidth, Timeline.RULER);
    const {step, times} = this.ticks();
    for (const time of times) {
      const x = this.xAt(time);
      context.fillStyle = colors.line;
      context.fillRect(x, 0, 1, Timeline.RULER);
      context.fillStyle = colors.faint;
      context.fillText(moment(time, step), x + 4, Timeline.RULER / 2);
    }
  }

  // Of the selected op, or of the ops of the selected launch: from where it was submitted to its
  // launch and on to its end.
  drawArrows(top) {
    if (this.selected < 0) return;
    const {trace} = this;
    const op = trace.opOf[this.selected];
    const ops = op >= 0 ? [op] : trace.opsOfLaunch(this.selected).subarray(0, Timeline.MOST_ARROWS);
    this.context.save();
    this.context.beginPath();
    this.context.rect(Timeline.LABELS, Timeline.RULER, this.width, this.canvas.clientHeight);
    this.context.clip();
    this.context.strokeStyle = this.context.fillStyle = this.colors.accent;
    this.context.lineWidth = 1.5;
    for (const each of ops) {
      const slice = trace.opSlice[each], launch = trace.opLaunch[each];
      const submitted = this.place(trace.track[slice], trace.opSubmit[each], top);
      const ended = this.place(trace.track[slice], trace.end[slice], top);
      const launched = launch < 0 ? null :
          this.place(trace.track[launch], trace.begin[launch], top);
      this.drawArrow(submitted, launched ?? ended);
      if (launched !== null) this.drawArrow(launched, ended);
    }
    this.context.restore();
  }

  // Null: its track has no row.
  place(track, time, top) {
    const row = this.rows[this.rowOf[track]];
    return row === undefined ? null : [this.xAt(time), row.y + row.height / 2 - top];
  }

  drawArrow(from, to) {
    if (from === null || to === null) return;
    const {context} = this;
    const [[x0, y0], [x1, y1]] = [from, to];
    const bend = Math.min(60, Math.max(12, Math.abs(x1 - x0) / 2));
    context.beginPath();
    context.moveTo(x0, y0);
    context.bezierCurveTo(x0 + bend, y0, x1 - bend, y1, x1, y1);
    context.stroke();
    context.beginPath();
    context.arc(x0, y0, 2.5, 0, 2 * Math.PI);
    context.moveTo(x1, y1);
    context.lineTo(x1 - 7, y1 - 4);
    context.lineTo(x1 - 7, y1 + 4);
    context.fill();
  }
}

// In pixels.
Timeline.LABELS = 150;
Timeline.RULER = 24;
Timeline.GROUP = 22;
Timeline.ROW = 20;
Timeline.LEAST_NS = 100;
Timeline.MOST_ARROWS = 64;
