#!/usr/bin/env python3
"""What `concertctl trace html` writes, opened in a real Chromium: it has every op and says what became of it, finds, zooms and
moves, runs nothing of a trace and asks no network.

  trace_page_test.py BIN_DIR

Exits with 77, which CTest takes for skipped, where there is no browser: `tests/run --browser` installs one.
"""

import os
import re
import subprocess
import sys
import tempfile
import unittest

import browser
import recording

BIN = sys.argv.pop(1)
MIB = 1 << 20
# Of the canvas, as timeline.js has them.
LABELS, FIRST_LANE_Y = 150, 24 + 22 + 10
# As page.css has them in the light.
BACK, ACCENT, GEMM = "255,255,255", "194,37,92", "116,169,232"


def write_page(trace):
    """The page of a trace, and how much memory that took."""
    page = f"{trace}.html"
    process = subprocess.Popen([f"{BIN}/concertctl", "trace", "html", trace, "--out", page],
                               env=recording.ENVIRONMENT, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise RuntimeError(f"concertctl trace html failed on {trace}")
    return page, usage.ru_maxrss * 1024


def made_up(what, folder):
    trace = f"{folder}/{what}.pftrace"
    subprocess.run([f"{BIN}/write_trace", what, trace], check=True)
    return trace


class PageTest(unittest.TestCase):
    """A page of one trace in one browser, for the tests of a class below."""

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="concert-page.")
        cls.addClassCleanup(cls.folder.cleanup)
        cls.page, cls.page_memory = write_page(cls.make(cls.folder.name))
        cls.browser = browser.Browser(browser.find())
        cls.addClassCleanup(cls.browser.close)

    def setUp(self):
        self.browser.problems.clear()
        self.browser.requests.clear()
        self.browser.open(self.page)

    def tearDown(self):
        self.assertEqual(self.browser.problems, [])
        self.assertEqual(self.browser.requests, [f"file://{self.page}"])

    def find(self, text):
        self.browser.run("document.getElementById('find').select()")
        self.browser.type(text)

    def select_session(self, name):
        self.browser.run("""((select) => {
          select.selectedIndex = Array.from(select.options).findIndex((option) => option.text.endsWith(%r));
          select.dispatchEvent(new Event('change'));
        })(document.getElementById('session'))""" % name)
        self.browser.settle()

    def found(self):
        """How many ops the page says it has found."""
        return int(re.match(r"[\d,]+", self.browser.text("#found"))[0].replace(",", ""))

    def select(self, number):
        """The op at this place of the list, which then is in the middle of the timeline."""
        self.browser.click(f"#results li:nth-child({number}) button")

    def details(self):
        """{name: value} of what is selected."""
        return dict(zip(self.browser.texts("#details dt"), self.browser.texts("#details dd")))

    def place(self, selector="#timeline"):
        """x, y, width and height of an element."""
        return self.browser.run("(({x, y, width, height}) => [x, y, width, height])"
                                f"(document.querySelector('{selector}').getBoundingClientRect())")

    def middle(self, y=FIRST_LANE_Y):
        """The middle of the timeline at this height of it."""
        left, top, width, _ = self.place()
        return left + (LABELS + width) / 2, top + y

    def colors(self, y=FIRST_LANE_Y, height=1):
        """The colours of the timeline's pixels from this height on, by how many there are."""
        return self.browser.run("""((canvas) => {
          const copy = new OffscreenCanvas(canvas.width, canvas.height).getContext('2d', {willReadFrequently: true});
          copy.drawImage(canvas, 0, 0);
          const {data} = copy.getImageData(%d, %d, canvas.width - %d, %d || canvas.height);
          const colors = {};
          for (let i = 0; i < data.length; i += 4) {
            const color = Array.from(data.subarray(i, i + 3)).join();
            colors[color] = (colors[color] ?? 0) + 1;
          }
          return colors;
        })(document.getElementById('timeline'))""" % (LABELS + 1, y, LABELS + 1, height))

    def seen(self):
        return self.browser.text("#seen")


class RecordedTest(PageTest):
    @classmethod
    def make(cls, folder):
        trace, cls.summary = recording.record(BIN, folder)
        return trace

    def test_every_op_is_there(self):
        self.assertGreater(self.summary["op_count"], 0)
        self.assertEqual(self.found(), self.summary["op_count"])
        summary = self.browser.texts("#summary li")
        self.assertEqual(summary[0], "GPU 0: concert simulator, 132 SMs")
        self.assertIn(f"{self.summary['op_count']:,} ops", summary)
        self.assertEqual(self.browser.text("#simulated"), "SIMULATED")

    def test_sessions_have_all_ops_between_them(self):
        sessions = self.browser.texts("#session option")[1:]
        for name in ("server-a", "server-b", "all-reduce"):
            self.assertTrue(any(session.endswith(f": {name}") for session in sessions), sessions)
        total = 0
        for session in sessions:
            self.select_session(session)
            total += self.found()
            for result in self.browser.texts("#results button"):
                self.assertIn(session, result)
        self.assertEqual(total, self.summary["op_count"])

    def test_a_selected_op_says_what_became_of_it(self):
        # Of those that are listed, which are the first: the plan of the very first may be older than the recording.
        self.select(len(self.browser.texts("#results button")) // 2)
        self.assertRegex(self.browser.text("#details .reason"), r"\w+ \w+")
        details = self.details()
        for name in ("track", "submitted at", "ended at", "submitted to ready", "ready to launched",
                     "launched to started", "started to ended", "plan", "plan predicted", "plan took",
                     "one after the other"):
            self.assertIn(name, details)
        self.assertIn("GPU 0", self.browser.text("#details button"))
        self.assertGreater(self.colors(0, height=0)[ACCENT], 100)  # its frame and its arrows
        self.browser.key("Escape")
        self.assertEqual(self.browser.text("#details"), "Nothing is selected")

    def test_words_narrow_what_is_found(self):
        self.find("all_reduce")
        reduces = self.found()
        self.assertGreater(reduces, 0)
        self.assertLess(reduces, self.summary["op_count"])
        self.find("all_reduce server-a")  # which reduces nothing
        self.assertEqual(self.found(), 0)
        self.find("")
        self.assertEqual(self.found(), self.summary["op_count"])

    def test_zoom_and_move(self):
        all_seen = self.seen()
        x, y = self.middle()
        seen = []
        for step in (lambda: self.browser.key("w"), lambda: self.browser.wheel(x, y, -100),
                     lambda: self.browser.click("#zoom-in"), lambda: self.browser.key("a"),
                     lambda: self.browser.key("d"), lambda: self.browser.press(x, y, (x + 50, y))):
            before = self.seen()
            step()
            seen.append(self.seen())
            self.assertNotEqual(seen[-1], before)
        spans = [span.split(" from ")[0] for span in seen]
        self.assertEqual(len(set(spans[:3])), 3)  # it zooms
        self.assertEqual(len(set(spans[2:])), 1)  # it moves
        self.browser.key("0")
        self.assertEqual(self.seen(), all_seen)

    def test_one_goes_from_slice_to_slice(self):
        self.select(1)
        first = self.browser.text("#details")
        self.browser.key("ArrowRight")
        self.assertNotEqual(self.browser.text("#details"), first)
        self.browser.key("ArrowLeft")
        self.assertEqual(self.browser.text("#details"), first)

    def test_everything_to_press_has_a_name(self):
        unnamed = self.browser.run("""Array.from(document.querySelectorAll('button, input, select, canvas'))
            .filter((each) => !(each.innerText || each.ariaLabel || each.labels?.length))
            .map((each) => each.outerHTML)""")
        self.assertEqual(unnamed, [])

    def test_it_is_as_dark_as_everything_else(self):
        light = self.colors()
        self.browser.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark"}])
        self.browser.settle()
        dark = self.colors()
        self.browser.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "light"}])
        self.assertIn(BACK, light)
        self.assertNotIn(BACK, dark)


class HostileTest(PageTest):
    @classmethod
    def make(cls, folder):
        return made_up("hostile", folder)

    def tearDown(self):
        super().tearDown()
        self.assertIsNone(self.browser.run("window.hacked"))

    def test_names_are_only_shown(self):
        self.assertEqual(self.found(), 10)
        self.assertEqual(self.browser.run("document.querySelectorAll('img, iframe, object, script').length"), 1)
        sessions = self.browser.texts("#session option")
        self.assertIn("session 2: </script><script>window.hacked = 1</script>", sessions)
        self.assertIn("session 6: \\u{202e}gnisrever\\u{2066} \\u{200e}", sessions)
        self.assertIn("session 7: bell\\u{7} newline\\u{a} escape\\u{1b} zero\\u{0}", sessions)
        self.assertIn("3 ops and plans are missing", self.browser.texts("#summary li"))

    def test_selecting_and_finding_run_nothing(self):
        for number in range(1, 11):
            self.select(number)
            self.assertNotEqual(self.browser.text("#details .reason"), "")
        self.find("</script>")
        self.assertEqual(self.found(), 10)  # they are all on the GPU of that name
        self.find("onerror")
        self.assertEqual(self.found(), 1)

    def test_a_launch_is_selected_where_it_is_drawn(self):
        self.select(2)
        x, y = self.middle()
        self.browser.mouse("mouseMoved", x, y)
        self.browser.settle()
        self.assertIn("lane 0", self.browser.text("#hint"))
        self.browser.press(x, y)
        self.assertIn("Its 1 op", self.browser.texts("#details h2"))
        self.assertEqual(self.details()["its plan took"], "11 % longer than predicted")

    def test_the_page_lets_nothing_in(self):
        refused = self.browser.run("fetch('https://example.com').then(() => 'sent', () => 'refused')")
        self.browser.run("""document.body.append(Object.assign(
            document.createElement('script'), {textContent: 'window.hacked = 1'}))""")
        self.browser.settle()
        self.assertEqual(refused, "refused")
        self.assertIsNone(self.browser.run("window.hacked"))
        # What the browser says of both.
        self.assertTrue(all("Content Security Policy" in problem for problem in self.browser.problems),
                        self.browser.problems)
        self.browser.problems.clear()
        self.browser.requests[1:] = []


class LargeTest(PageTest):
    OPS = 500_000

    @classmethod
    def make(cls, folder):
        return made_up("large", folder)

    def test_it_opens_and_draws_within_bounds(self):
        self.assertEqual(self.found(), self.OPS)
        self.assertLess(self.page_memory, 512 * MIB)
        self.assertLess(os.path.getsize(self.page), 128 * MIB)
        self.assertLess(self.browser.heap_bytes(), 256 * MIB)
        # Every pixel of a lane has slices, which are drawn as one; from near there are gaps.
        whole = self.colors()
        self.assertGreater(whole[GEMM], 0.95 * sum(whole.values()))
        self.select(1)
        near = self.colors()
        self.assertLess(near.get(GEMM, 0), 0.5 * sum(near.values()))

    def test_it_finds_one_of_all(self):
        self.find("77777")
        self.assertEqual(self.found(), 4)  # the plan's
        self.select_session("session 10")
        self.assertLessEqual(self.found(), 1)


if __name__ == "__main__":
    if browser.find() is None:
        print("skipped: there is no Chromium; `tests/run --browser` installs one, $CONCERT_BROWSER names one")
        sys.exit(77)
    unittest.main(verbosity=2)
