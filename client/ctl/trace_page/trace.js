'use strict';

// The trace as the page holds it (client/ctl/trace_page.h): slices in columns, by track and then by
// time, and what joins them. Times are nanoseconds from the trace's begin. -1: none.
class Trace {
  constructor() {
    const [head] = Trace.take('head');
    this.strings = Trace.take('strings');
    this.notes = head.notes.map((note) => this.strings[note]);
    this.duration = head.duration;
    this.addTracks(head.tracks);
    this.addTimes();
    this.addArguments(head.shapes);
    this.addOps();
    this.addKinds();
  }

  // A column is taken out of the document as it is read, so that one at most is there twice.
  static take(name) {
    const element = document.querySelector(`script[data-column="${name}"]`);
    const values = JSON.parse(element.textContent);
    element.remove();
    return values;
  }

  addTracks(tracks) {
    let first = 0;
    this.tracks = tracks.map(([name, parent, count]) => {
      first += count;
      return {name: this.strings[name], parent, first: first - count, count};
    });
    this.size = first;
    this.track = new Uint32Array(this.size);
    this.tracks.forEach(
        ({first, count}, track) => this.track.fill(track, first, first + count));
  }

  // The file has each begin as the gap behind the slice before it on its track.
  addTimes() {
    const gap = Trace.take('gap');
    const length = Trace.take('length');
    this.begin = new Float64Array(this.size);
    this.end = new Float64Array(this.size);
    for (const {first, count} of this.tracks) {
      let free = 0;
      for (let slice = first; slice < first + count; ++slice) {
        this.begin[slice] = free + gap[slice];
        this.end[slice] = free = this.begin[slice] + length[slice];
      }
    }
  }

  // Slices with arguments of the same names have one shape, and a row in its columns.
  addArguments(shapes) {
    this.name = Uint32Array.from(Trace.take('name'));
    this.shape = Uint32Array.from(Trace.take('shape'));
    this.row = new Uint32Array(this.size);
    const rows = new Uint32Array(shapes.length);
    for (let slice = 0; slice < this.size; ++slice) {
      this.row[slice] = rows[this.shape[slice]]++;
    }
    this.shapes = shapes.map((columns, shape) => columns.map(([name, isText], i) => {
      const values = Trace.take(`${shape}.${i}`);
      return {
        name: this.strings[name],
        isText,
        values: isText ? Uint32Array.from(values) : Float64Array.from(values),
      };
    }));
  }

  addOps() {
    this.opSlice = Uint32Array.from(Trace.take('op'));
    this.opLaunch = Int32Array.from(Trace.take('launch'));
    this.opSubmit = Float64Array.from(Trace.take('submit'));
    this.opOf = new Int32Array(this.size).fill(-1);
    this.opSlice.forEach((slice, op) => this.opOf[slice] = op);
    // The ops of launch l are launched[firstLaunched[l]] to launched[firstLaunched[l + 1] - 1].
    this.firstLaunched = new Uint32Array(this.size + 1);
    for (const launch of this.opLaunch) {
      if (launch >= 0) ++this.firstLaunched[launch + 1];
    }
    this.launchCount = 0;
    for (let slice = 0; slice < this.size; ++slice) {
      if (this.firstLaunched[slice + 1] > 0) ++this.launchCount;
      this.firstLaunched[slice + 1] += this.firstLaunched[slice];
    }
    const next = this.firstLaunched.slice();
    this.launched = new Uint32Array(this.firstLaunched[this.size]);
    this.opLaunch.forEach((launch, op) => {
      if (launch >= 0) this.launched[next[launch]++] = op;
    });
  }

  // A slice is named "gemm", "3 x gemm" or, if it failed, "gemm CANCELLED". Known kinds have
  // colours of their own, others take turns.
  addKinds() {
    this.kinds = new Map();  // those that occur, and the number of their colour
    this.colorOfName = new Uint8Array(this.strings.length);
    this.failedName = new Uint8Array(this.strings.length);
    for (const name of new Set(this.name)) {
      const [, kind, status] = this.strings[name].match(/^(?:\d+ x )?(\S*)(?: (.*))?/s);
      const known = Trace.KINDS.indexOf(kind);
      if (!this.kinds.has(kind)) {
        this.kinds.set(kind, (known >= 0 ? known : this.kinds.size) % Trace.KINDS.length);
      }
      this.colorOfName[name] = this.kinds.get(kind);
      this.failedName[name] = status === undefined ? 0 : 1;
    }
  }

  get opCount() {
    return this.opSlice.length;
  }

  // [name, number or string] of each argument.
  argumentsOf(slice) {
    return this.shapes[this.shape[slice]].map(({name, isText, values}) => {
      const value = values[this.row[slice]];
      return [name, isText ? this.strings[value] : value];
    });
  }

  opsOfLaunch(slice) {
    return this.launched.subarray(this.firstLaunched[slice], this.firstLaunched[slice + 1]);
  }

  root(track) {
    while (this.tracks[track].parent >= 0) track = this.tracks[track].parent;
    return track;
  }

  path(track) {
    const {name, parent} = this.tracks[track];
    return parent < 0 ? name : `${this.path(parent)} / ${name}`;
  }

  // Which slices to show: 1 for each. An op is found if every word of `text` stands at it or at its
  // launch, in names of tracks too, and if it is of session `root` (-1: of any); a launch is if one
  // of its ops is. Null: all.
  find(text, root) {
    const words = text.toLowerCase().split(/\s+/).filter((word) => word !== '');
    if (words.length === 0 && root < 0) return null;
    const found = new Uint8Array(this.size).fill(root < 0 ? 1 : 0);
    if (root >= 0) {
      this.tracks.forEach(({first, count}, track) => {
        if (this.root(track) === root) found.fill(1, first, first + count);
      });
    }
    for (const word of words) {
      const has = this.slicesWith(word);
      this.opSlice.forEach((slice, op) => {
        const launch = this.opLaunch[op];
        found[slice] &= has[slice] | (launch >= 0 ? has[launch] : 0);
      });
    }
    for (let slice = 0; slice < this.size; ++slice) {
      if (this.opOf[slice] >= 0) continue;
      found[slice] = this.opsOfLaunch(slice).some((op) => found[this.opSlice[op]]) ? 1 : 0;
    }
    return found;
  }

  // 1 for each slice at which `word`, in lower case, stands by itself.
  slicesWith(word) {
    const holds = (text) => text.toLowerCase().includes(word) ? 1 : 0;
    const strings = Uint8Array.from(this.strings, holds);
    const tracks = this.tracks.map((_, track) => holds(this.path(track)));
    // "plan" 17 is found as 17.
    const number = /^\d+$/.test(word) ? Number(word) : NaN;
    const has = new Uint8Array(this.size);
    for (let slice = 0; slice < this.size; ++slice) {
      const row = this.row[slice];
      has[slice] = tracks[this.track[slice]] | strings[this.name[slice]] |
          (this.shapes[this.shape[slice]].some(({name, isText, values}) =>
            isText ? strings[values[row]] : name === 'plan' && values[row] === number) ? 1 : 0);
    }
    return has;
  }
}

// As many as page.css has colours (--kind-0 to --kind-7).
Trace.KINDS = [
  'gemm', 'copy', 'all_reduce', 'all_gather', 'reduce_scatter', 'all_to_all', 'broadcast',
  'barrier',
];
