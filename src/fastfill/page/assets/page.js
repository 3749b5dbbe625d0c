
// The live page: asks for /state.json and shows it. Texts are set as texts, never as markup.
(() => {
  const EVERY = 2000; // milliseconds
  const HIDDEN = 15000; // while nobody looks
  const at = (id) => document.getElementById(id);
  const say = (id, text) => {
    const node = at(id);
    if (node.textContent !== text) node.textContent = text;
  };
  const count = (value) => Math.round(value).toLocaleString("en");
  const clock = (seconds) => new Date(seconds * 1000).toLocaleTimeString("en-GB");
  const day = (text) => {
    const when = new Date(text);
    const date = when.toLocaleDateString("en-GB", { day: "2-digit", month: "short" });
    return `${date} ${when.toLocaleTimeString("en-GB")}`;
  };
  let chart = null;
  let answered = null;

  const GENERATIONS = [
    ["new", "new", "new", "embedded by the new model"],
    ["aligned", "aligned", "aligned", "mapped from the old vector"],
    ["waiting", "waiting-rows", "waiting", "for a first vector"],
    ["unmarked", "unmarked", "not swept yet", "written by others since"],
  ];

  const rows = (progress, phase) => {
    const share = 100 * progress.fraction;
    const open = phase !== "planned" && phase !== "rolled back"; // else rows have no generation
    say("share", progress.total ? `${share.toFixed(1)} %` : "–");
    const shown = GENERATIONS.filter(([key], place) => (open && place < 2) || progress[key] > 0);
    const bar = shown.filter(([key]) => progress[key] > 0).map(([key, style]) => {
      const part = make("span", { class: style });
      part.style.width = `${(100 * progress[key]) / progress.total}%`;
      return part;
    });
    at("bar").replaceChildren(...bar);
    at("bar").setAttribute("aria-label", shown.map(([key, , name]) => `${count(progress[key])} ${name}`).join(", "));
    const lines = shown.map(([key, style, name, about]) => {
      const stale = key === "aligned" && progress.stale ? `; ${count(progress.stale)} by the map before` : "";
      const head = make("th", { scope: "row" }, make("i", { class: style }), `${name} `, make("small", {}, about + stale));
      return make("tr", {}, head, make("td", {}, count(progress[key])));
    });
    lines.push(make("tr", {}, make("th", { scope: "row" }, "all"), make("td", {}, count(progress.total))));
    at("rows").replaceChildren(...lines);
  };

  const facts = (state) => {
    const { summary, progress } = state;
    const speed = summary.rate === null ? "–" : `${summary.rate >= 10 ? count(summary.rate) : summary.rate.toFixed(1)} rows/s`;
    const listed = [
      ["Rate", speed, summary.left ? `${summary.left} left` : ""],
      ["Quality", summary.quality ?? "–", summary.metric ? `of the new model's ${summary.metric}` : make("span", {}, "not measured: give ", make("code", {}, "--label"))],
      ["Serves", ...summary.serves],
      ["Failed items", count(progress.failed), progress.failed ? "quarantined, listed below" : ""],
    ];
    at("facts").replaceChildren(...listed.map(([name, value, more]) => {
      const cell = make("dd", {}, value);
      if (more) cell.append(make("small", {}, more));
      return make("div", {}, make("dt", {}, name), cell);
    }));
  };

  const quality = (state) => {
    at("quality-section").hidden = !state.charts.length;
    say("forecast", state.forecast || "");
    say("evidence", state.serving_lines[0] || "");
    if (!state.charts.length) return;
    if (chart === null) chart = new Chart(at("quality"), state.charts[0]);
    else if (JSON.stringify(chart.chart) !== JSON.stringify(state.charts[0])) chart.update(state.charts[0]);
  };

  const failed = (items) => {
    const listed = Object.entries(items);
    at("failed-section").hidden = !listed.length;
    at("failed").replaceChildren(...listed.map(([item, error]) => make("tr", {}, make("td", {}, item), make("td", {}, error))));
  };

  // Plain values as words: fingerprints shortened, numbers rounded, what is nested in brackets.
  const words = (value) => {
    if (value !== null && typeof value === "object") {
      return `(${Object.entries(value).map(([key, one]) => `${key} ${words(one)}`).join(", ")})`;
    }
    if (typeof value === "number") return (Number.isInteger(value) ? count(value) : String(+value.toPrecision(4)));
    return /^[0-9a-f]{20,}$/.test(value) ? value.slice(0, 12) : String(value);
  };
  const details = (event) => Object.entries(event)
    .filter(([key, value]) => !["time", "who", "event"].includes(key) && value !== null)
    .map(([key, value]) => `${key} ${words(value)}`).join(", ");

  const trail = (events) => {
    const body = at("trail");
    at("trail-section").hidden = !events.length;
    if (body.childElementCount === events.length && body.dataset.last === events.at(-1)?.time) return;
    body.dataset.last = events.at(-1)?.time ?? "";
    body.replaceChildren(...[...events].reverse().map((event) => make("tr", {},
      make("td", {}, day(event.time)), make("td", {}, event.event), make("td", {}, details(event)), make("td", {}, event.who))));
  };

  // Each word is a box: a line breaks between words, not at the hyphens of an option.
  const command = (text) => {
    if (at("command").textContent === text) return;
    const parts = text.split(" ").flatMap((word) => [" ", make("span", {}, word)]);
    at("command").replaceChildren(...parts.slice(1));
  };

  const show = (state) => {
    const { activity } = state.summary;
    say("word", activity.word);
    at("word").className = `pill ${activity.kind}`;
    say("detail", activity.detail);
    say("where", [state.url, state.encoder && `to ${state.encoder}`].filter(Boolean).join(" "));
    document.title = `${state.progress.total ? (100 * state.progress.fraction).toFixed(1) + " % · " : ""}${activity.word} · FastFill`;
    say("why", state.next.why);
    command(state.next.command);
    rows(state.progress, state.phase);
    say("swept", state.summary.swept ? `Others' writes were last looked for ${state.summary.swept} ago.` : "");
    facts(state);
    quality(state);
    failed(state.quarantined);
    trail(state.history);
    say("seen", `As it was at ${clock(state.now)}.`);
  };

  const trouble = (text) => {
    at("trouble").hidden = !text;
    say("trouble", text);
  };

  const look = async () => {
    try {
      const response = await fetch("/state.json", { cache: "no-store" });
      if (response.ok) {
        show(await response.json());
        answered = Date.now() / 1000;
        trouble("");
      } else trouble(`The store cannot be read at present: ${await response.text()}`);
    } catch {
      const since = answered ? ` since ${clock(answered)}: the figures are of then` : "";
      trouble(`fastfill watch does not answer${since}. If it has ended, start it again.`);
    }
    setTimeout(look, document.hidden ? HIDDEN : EVERY);
  };

  at("copy").addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(at("command").textContent);
      say("copy", "Copied");
    } catch {
      getSelection().selectAllChildren(at("command")); // no clipboard: ready for Ctrl-C
      say("copy", "Selected");
    }
    setTimeout(() => say("copy", "Copy"), 1500);
  });
  look();
})();
