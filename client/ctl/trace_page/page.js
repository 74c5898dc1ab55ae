'use strict';

// Joins the trace and its timeline with the rest of the page: what is selected, found, pressed.
class Page {
  constructor() {
    this.trace = new Trace();
    this.canvas = Page.get('timeline');
    this.hint = Page.get('hint');
    this.timeline =
        new Timeline(this.trace, this.canvas, Page.get('scroller'), Page.get('spacer'));
    this.timeline.onDraw = () => {
      const {from, to} = this.timeline;
      Page.get('seen').textContent = `${duration(to - from)} from ${moment(from)}`;
      document.body.dataset.state = 'ready';
    };
    this.addSummary();
    this.addTools();
    this.addPointer();
    document.addEventListener('keydown', (event) => this.press(event));
    this.search();
    this.select(-1);
  }

  static get(id) {
    return document.getElementById(id);
  }

  addSummary() {
    const {trace} = this;
    const gpus = trace.tracks.filter(
        ({name, parent}) => parent < 0 && name.startsWith('GPU ')).map(({name}) => name);
    const shown = gpus.length > 2 ? [...gpus.slice(0, 2), `${gpus.length - 2} more`] : gpus;
    const facts = [
      ...shown.map((name) => name.replace(/ \(simulated\)$/, '')),
      duration(trace.duration), plural(trace.opCount, 'op'), plural(trace.launchCount, 'launch'),
      ...trace.notes,
    ];
    Page.get('summary').append(...facts.map((fact) => element('li', visible(fact))));
    Page.get('simulated').hidden = !gpus.some((name) => name.endsWith(' (simulated)'));
  }

  addTools() {
    const {trace, timeline} = this;
    const session = Page.get('session'), find = Page.get('find');
    trace.tracks.forEach(({name, parent}, track) => {
      if (parent >= 0 || name.startsWith('GPU ')) return;
      session.append(element('option', visible(name), {value: track}));
    });
    session.addEventListener('change', () => this.search());
    find.addEventListener('input', () => this.search());
    for (const [kind, color] of [...trace.kinds].slice(0, Page.MOST_KINDS)) {
      const button = element('button', visible(kind), {title: `Find ${visible(kind)}`});
      button.style.background = `var(--kind-${color})`;
      button.addEventListener('click', () => {
        find.value = kind;
        this.search();
      });
      Page.get('legend').append(button);
    }
    Page.get('zoom-in').addEventListener('click', () => timeline.zoom(1 / Page.ZOOM));
    Page.get('zoom-out').addEventListener('click', () => timeline.zoom(Page.ZOOM));
    Page.get('zoom-all').addEventListener('click', () => timeline.showAll());
  }

  // ---- Finding

  search() {
    const {trace, timeline} = this;
    const session = Page.get('session').value;
    const found = trace.find(Page.get('find').value, session === '' ? -1 : Number(session));
    timeline.show(found);
    const ops = trace.opSlice.filter((slice) => found === null || found[slice]);
    const more = ops.length > Page.MOST_LISTED ? `; the first ${Page.MOST_LISTED}:` : '';
    const of = found === null ? '' : ` of ${count(trace.opCount)}`;
    Page.get('found').textContent = `${count(ops.length)}${of} ops${more}`;
    Page.get('results').replaceChildren(
        ...Array.from(ops.subarray(0, Page.MOST_LISTED), (slice) => this.result(slice)));
  }

  result(slice) {
    const item = element('li');
    item.append(this.sliceButton(slice, visible(this.trace.path(this.trace.track[slice]))));
    return item;
  }

  sliceButton(slice, where) {
    const {trace} = this;
    const button = element('button', `${this.nameOf(slice)} at ${moment(trace.begin[slice])}, ${
      duration(trace.end[slice] - trace.begin[slice])}, ${where}`);
    button.dataset.slice = slice;
    button.addEventListener('click', () => {
      this.select(slice);
      this.timeline.showSlice(slice);
    });
    return button;
  }

  // ---- Selecting

  nameOf(slice) {
    return visible(this.trace.strings[this.trace.name[slice]]);
  }

  select(slice) {
    this.timeline.selected = slice;
    this.timeline.draw();
    for (const button of document.querySelectorAll('#results button')) {
      button.setAttribute('aria-current', Number(button.dataset.slice) === slice);
    }
    const details = Page.get('details');
    if (slice < 0) {
      details.replaceChildren(element('h2', 'Nothing is selected'));
      return;
    }
    const op = this.trace.opOf[slice];
    details.replaceChildren(element('h2', this.nameOf(slice)));
    if (op >= 0) this.describeOp(details, slice, op);
    else this.describeLaunch(details, slice);
  }

  describeOp(details, slice, op) {
    const {trace} = this;
    const launch = trace.opLaunch[op];
    const own = trace.argumentsOf(slice);
    Page.addReason(details, own);
    Page.addList(details, [
      ['track', visible(trace.path(trace.track[slice]))],
      ['submitted at', moment(trace.opSubmit[op])],
      ['ended at', moment(trace.end[slice])],
      ...own.filter(([name]) => name !== 'reason').map(([name, value]) => argument(name, value)),
    ]);
    if (launch < 0) return;
    details.append(element('h2', 'Its launch'));
    const known = new Set(own.map(([name]) => name));
    const others = trace.argumentsOf(launch).filter(([name]) => !known.has(name));
    Page.addList(details, [...Page.outcome(others), ...others.map((pair) => argument(...pair))]);
    details.append(this.sliceButton(launch, visible(trace.path(trace.track[launch]))));
  }

  describeLaunch(details, slice) {
    const {trace} = this;
    const own = trace.argumentsOf(slice);
    Page.addReason(details, own);
    Page.addList(details, [
      ['track', visible(trace.path(trace.track[slice]))],
      ['from', moment(trace.begin[slice])],
      ['for', duration(trace.end[slice] - trace.begin[slice])],
      ...Page.outcome(own),
      ...own.filter(([name]) => name !== 'reason').map(([name, value]) => argument(name, value)),
    ]);
    const ops = trace.opsOfLaunch(slice);
    if (ops.length === 0) return;
    details.append(element('h2', `Its ${plural(ops.length, 'op')}`));
    for (const op of ops.subarray(0, Page.MOST_LISTED)) {
      const each = trace.opSlice[op];
      details.append(this.sliceButton(each, visible(trace.path(trace.track[each]))));
    }
  }

  static addReason(details, pairs) {
    const reason = pairs.find(([name]) => name === 'reason');
    if (reason === undefined) return;
    details.append(element('p', visible(String(reason[1])), {class: 'reason'}));
  }

  static addList(details, pairs) {
    const list = element('dl');
    for (const [name, value] of pairs) list.append(element('dt', name), element('dd', value));
    details.append(list);
  }

  // What was predicted against what came, where a plan says both.
  static outcome(pairs) {
    const values = new Map(pairs);
    const predicted = values.get('plan predicted, us'), took = values.get('plan took, us');
    if (!(predicted > 0) || !(took > 0)) return [];
    const percent = Math.round((took / predicted - 1) * 100);
    if (percent === 0) return [['its plan took', 'as long as predicted']];
    const than = percent > 100 ? `${(took / predicted).toFixed(1)} times as long as predicted` :
        `${Math.abs(percent)} % ${percent > 0 ? 'longer' : 'less'} than predicted`;
    return [['its plan took', than]];
  }

  // ---- Pointer and keys

  addPointer() {
    const {canvas, timeline} = this;
    let drag = null;
    canvas.addEventListener('pointerdown', (event) => {
      canvas.setPointerCapture(event.pointerId);
      drag = {x: event.clientX, y: event.clientY, moved: false};
    });
    canvas.addEventListener('pointermove', (event) => {
      if (drag === null) return this.point(event);
      const [x, y] = [event.clientX - drag.x, event.clientY - drag.y];
      if (!drag.moved && Math.hypot(x, y) < Page.DRAG_PIXELS) return;
      this.hint.hidden = true;
      timeline.move(-x / timeline.width);
      timeline.scroller.scrollTop -= y;
      drag = {x: event.clientX, y: event.clientY, moved: true};
    });
    canvas.addEventListener('pointerup', (event) => {
      if (drag !== null && !drag.moved) this.select(this.sliceAt(event));
      drag = null;
    });
    canvas.addEventListener('pointercancel', () => drag = null);
    canvas.addEventListener('pointerleave', () => this.hint.hidden = true);
    canvas.addEventListener('dblclick', (event) => {
      const slice = this.sliceAt(event);
      if (slice >= 0) timeline.showSlice(slice);
    });
    canvas.addEventListener('wheel', (event) => this.turn(event), {passive: false});
  }

  // Over the labels the wheel scrolls.
  turn(event) {
    if (event.offsetX < Timeline.LABELS) return;
    event.preventDefault();
    if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
      this.timeline.move((event.deltaX || event.deltaY) / this.timeline.width);
    } else {
      this.timeline.zoom(Page.ZOOM ** (event.deltaY / Page.NOTCH_PIXELS),
                         this.timeline.timeAt(event.offsetX));
    }
  }

  sliceAt(event) {
    return this.timeline.sliceAt(event.offsetX, event.offsetY);
  }

  point(event) {
    const slice = this.sliceAt(event);
    this.hint.hidden = slice < 0;
    this.canvas.style.cursor = slice < 0 ? '' : 'pointer';
    if (slice < 0) return;
    const {trace} = this;
    this.hint.textContent = `${this.nameOf(slice)}, ${
      duration(trace.end[slice] - trace.begin[slice])}, ${visible(trace.path(trace.track[slice]))}`;
    this.hint.style.left = `${Math.min(event.clientX + 12, innerWidth - 320)}px`;
    this.hint.style.top = `${event.clientY + 16}px`;
  }

  press(event) {
    const typing = event.target instanceof HTMLInputElement ||
        event.target instanceof HTMLSelectElement;
    if (event.ctrlKey || event.altKey || event.metaKey) return;
    if (typing && event.key !== 'Escape') return;
    const {timeline} = this;
    const {selected} = timeline;
    const step = (by) => {
      const next = selected < 0 ? -1 : timeline.neighbour(selected, by);
      if (next < 0) return;
      this.select(next);
      const middle = (this.trace.begin[next] + this.trace.end[next]) / 2;
      if (middle < timeline.from || middle > timeline.to) {
        const half = (timeline.to - timeline.from) / 2;
        timeline.look(middle - half, middle + half);
      }
    };
    const keys = {
      'w': () => timeline.zoom(1 / Page.ZOOM),
      's': () => timeline.zoom(Page.ZOOM),
      'a': () => timeline.move(-0.1),
      'd': () => timeline.move(0.1),
      '0': () => timeline.showAll(),
      'f': () => selected >= 0 && timeline.showSlice(selected),
      'ArrowLeft': () => step(-1),
      'ArrowRight': () => step(1),
      '/': () => Page.get('find').focus(),
      'Escape': () => typing ? event.target.blur() : this.select(-1),
    };
    if (!Object.hasOwn(keys, event.key)) return;
    event.preventDefault();
    keys[event.key]();
  }
}

Page.ZOOM = 1.25;        // by a key or a notch of the wheel
Page.NOTCH_PIXELS = 100;
Page.DRAG_PIXELS = 4;    // less is a click
Page.MOST_LISTED = 100;
Page.MOST_KINDS = 12;

try {
  new Page();
} catch (error) {
  document.body.dataset.state = 'failed';
  Page.get('found').textContent = `This page cannot be shown: ${error.message}`;
  throw error;
}
