"""The page of a report in a real browser, Chromium without a window: nothing goes wrong, what can be pressed works, and
it can be read on a phone and in the dark.

A script that does what a person would is added to a copy of the page; what it finds it writes into the page, which
Chromium prints.
"""
import json
import re
import shutil
import subprocess
from html import unescape

import pytest

import flambeau as torch
from tests.patience import PATIENCE
from tests.thorough import sample

pytestmark = pytest.mark.pinned


def runs(path):
    """Whether a command is a browser; on Ubuntu it may be one that says how to install it."""
    return path is not None and subprocess.run([path, "--version"], capture_output=True, check=False).returncode == 0


BROWSER = next(filter(runs, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)
if BROWSER is None:
    pytest.skip("there is no Chromium here", allow_module_level=True)

BEFORE = """<script>
window.wrong = [];
addEventListener("error", event => wrong.push(event.message));
addEventListener("unhandledrejection", event => wrong.push(String(event.reason)));
addEventListener("securitypolicyviolation", event => wrong.push("asks for " + event.blockedURI));
for (const kind of ["error", "warn"]) console[kind] = (...words) => wrong.push(words.join(" "));
</script>"""

PERSON = """<script>
{
const found = {};
const all = query => [...document.querySelectorAll(query)];
const texts = query => all(query).map(one => one.textContent);
found.sections = texts("section > h2");
found.links = all("nav a").every(one => document.querySelector(one.getAttribute("href")));
found.cards = texts(".card strong");
found.charts = all("#curves figure").length;
// tables: a second press turns the order round; kernels that took the same time may stand in either
const times = () => texts("#kernels tbody tr td:nth-child(2)");
const names = () => texts("#kernels tbody tr td:nth-child(1)");
const first = times();
all("#kernels th button")[1].click();
found.turned = JSON.stringify(times()) === JSON.stringify([...first].reverse()) || first.length < 2;
found.sort = document.querySelector("#kernels th[aria-sort]").getAttribute("aria-sort");
all("#kernels th button")[0].click();
found.by_name = JSON.stringify(names()) === JSON.stringify([...names()].sort((a, b) => a.localeCompare(b)));
// the source begins where most of the time was spent; a line of a table shows its own
const most = all(".source div[style]").sort((a, b) => parseFloat(b.style.getPropertyValue("--share"))
  - parseFloat(a.style.getPropertyValue("--share")))[0].getBoundingClientRect();
const view = document.querySelector(".source").getBoundingClientRect();
found.hottest = most.top >= view.top - 1 && most.bottom <= view.bottom + 1;
const link = document.querySelector("#time table a.link");
link.click();
found.line = [link.textContent, document.querySelector(".source .at span:nth-child(3)")?.textContent];
// memory: a line can be left out
const button = document.querySelector("#memory .legend button");
const areas = () => document.querySelector("#memory figure svg").innerHTML;
const before = areas();
button.click();
found.hidden = [button.getAttribute("aria-pressed"), before !== areas()];
button.click();
found.shown = [button.getAttribute("aria-pressed"), before === areas()];
// the pointer over a curve
const svg = document.querySelector("#curves figure svg"), box = svg.getBoundingClientRect();
svg.dispatchEvent(new PointerEvent("pointermove", {clientX: box.right, clientY: box.top + 20, bubbles: true}));
found.tip = [document.querySelector(".tip").hidden, document.querySelector(".tip").textContent];
svg.dispatchEvent(new PointerEvent("pointerleave"));
found.tip_gone = document.querySelector(".tip").hidden;
// light and dark
const root = document.documentElement;
found.theme = root.dataset.theme;
found.paper = getComputedStyle(document.body).backgroundColor;
found.ink = getComputedStyle(document.body).color;
document.getElementById("theme").click();
found.other_theme = root.dataset.theme;
found.other_paper = getComputedStyle(document.body).backgroundColor;
// nothing sticks out
found.wide = [root.scrollWidth, root.clientWidth];
found.small = all("main p, main td, main th, main code").filter(one => one.getClientRects().length)
  .filter(one => parseFloat(getComputedStyle(one).fontSize) < 11).length;
found.graph = all("#graph svg .node, #graph svg .leaf").length;
found.loads = performance.getEntriesByType("resource").map(one => one.name).filter(name => !name.startsWith("data:"));
found.wrong = wrong;
document.body.append(Object.assign(document.createElement("pre"), {id: "found", textContent: JSON.stringify(found)}));
}
</script>"""


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """The page of a small training, as text."""
    path = tmp_path_factory.mktemp("report") / "run.html"
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
    optimizer = torch.optim.Adam(net.parameters())
    x, y = torch.randn(64, 6), torch.randn(64, 1)
    with torch.report(path, title="a name that is long enough to be broken on a narrow screen.py") as run:
        for step in range(12):
            loss = torch.nn.functional.mse_loss(net(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            run.log(score=float("nan") if step == 5 else step)
    return path.read_text(encoding="utf-8")


def printed(folder, *options):
    """The page of a folder after its scripts, as Chromium prints it."""
    done = subprocess.run([BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                           "--disable-quic", "--no-first-run", "--disable-background-networking",
                           "--disable-component-update", "--disable-sync", "--virtual-time-budget=4000",
                           f"--user-data-dir={folder / 'profile'}", *options,
                           "--dump-dom", (folder / "page.html").as_uri()], capture_output=True, text=True,
                          timeout=PATIENCE)
    assert done.stdout, done.stderr[-2000:]
    return done.stdout


def looked_at(page, folder, width, dark=False):
    """What a person finds who looks at the page in a window of this width."""
    text = page.replace("<meta charset", f"{BEFORE}<meta charset", 1).replace("</body>", f"{PERSON}</body>", 1)
    (folder / "page.html").write_text(text, encoding="utf-8")
    dumped = printed(folder, f"--window-size={width},900",
                     *(["--blink-settings=preferredColorScheme=0"] if dark else []))
    found = re.search(r'<pre id="found">(.*?)</pre>', dumped, re.S)
    assert found, dumped[-2000:]
    return json.loads(unescape(found[1]))


@pytest.mark.parametrize("width, dark", sample([(400, True), (1200, False)], 2))
def test_a_person_looks_at_it(page, tmp_path, width, dark):
    found = looked_at(page, tmp_path, width, dark)
    assert found["wrong"] == [] and found["loads"] == []
    assert found["sections"] == ["Where it ran", "Loss and throughput", "Findings", "Time by line", "Memory", "Kernels",
                                 "Graph"] and found["links"]
    assert found["cards"] == ["cpu"] and found["charts"] == 4 and found["graph"] >= 10
    assert found["turned"] and found["sort"] == "ascending" and found["by_name"]
    assert found["hottest"] and found["line"][1] == re.search(r":(\d+)", found["line"][0])[1]
    assert found["hidden"] == ["false", True] and found["shown"] == ["true", True]
    assert found["tip"][0] is False and "step 11" in found["tip"][1] and found["tip_gone"]
    assert (found["theme"], found["other_theme"]) == (("dark", "light") if dark else ("light", "dark"))
    assert found["paper"] != found["other_paper"] and contrast(found["paper"], found["ink"]) > 7
    assert found["wide"][0] <= found["wide"][1], "the page is wider than the screen"
    assert found["small"] == 0


def contrast(one, other):
    """How well two colours can be told apart, as WCAG counts it: 7 is good."""
    def light(colour):
        parts = [int(part) / 255 for part in re.findall(r"\d+", colour)[:3]]
        red, green, blue = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue
    dark, bright = sorted((light(one), light(other)))
    return (bright + 0.05) / (dark + 0.05)


def nothing(run):
    pass


def numbers_alone(run):
    for step in range(3):
        run.log(score=step)


def forward_alone(run):
    for _ in range(3):
        (torch.ones(64, 64) @ torch.ones(64, 64)).sum().item()


def backward_alone(run):
    x = torch.ones(8, requires_grad=True)
    x.exp().sum().backward()


@pytest.mark.parametrize("program", sample([nothing, backward_alone, numbers_alone, forward_alone], 2))
def test_a_report_of_little(tmp_path, program):
    """What a program has not done is said in its section; those after it are there."""
    with torch.report(tmp_path / "run.html") as run:
        program(run)
    text = (tmp_path / "run.html").read_text(encoding="utf-8").replace("<meta charset", f"{BEFORE}<meta charset", 1)
    told = """<script>document.title = JSON.stringify({wrong, empty: [...document.querySelectorAll("main > section")]
        .filter(one => !one.hidden && one.children.length < 2).map(one => one.id)})</script></body>"""
    (tmp_path / "page.html").write_text(text.replace("</body>", told), encoding="utf-8")
    dumped = printed(tmp_path)
    found = json.loads(unescape(re.search(r"<title>(.*?)</title>", dumped)[1]))
    assert found == {"wrong": [], "empty": []}
    assert program is not nothing or "No backward, and no optimizer step." in dumped
