"use strict";
// Draws what the watchdog tells over /events. Text is only ever set as text.
(() => {
  const SVG = "http://www.w3.org/2000/svg";
  const HISTORY_SECONDS = 600;
  const STALE_SECONDS = 20;
  const AGAIN_SECONDS = 5;
  const SHOWN_INCIDENTS = 4;

  // --- the theme: set before anything is painted ------------------------------------------------

  const THEMES = ["system", "light", "dark"];
  const kept = () => { try { return localStorage.getItem("theme"); } catch { return null; } };
  let theme = THEMES.includes(kept()) ? kept() : "system";
  const wear = () => {
    if (theme === "system") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
  };
  wear();

  // --- small tools ------------------------------------------------------------------------------

  const at = (id) => document.getElementById(id);
  const known = (value) => value !== null && value !== undefined;
  const NONE = "–";

  /** Make an element. A number or string is text; null, false and undefined are nothing. */
  function make(tag, attributes, ...children) {
    const name = tag.replace("svg:", "");
    const element = tag.startsWith("svg:") ? document.createElementNS(SVG, name) : document.createElement(name);
    for (const [key, value] of Object.entries(attributes || {})) {
      if (known(value) && value !== false) element.setAttribute(key, value === true ? "" : value);
    }
    element.append(...children.flat(2).filter((one) => known(one) && one !== false).map((one) => one instanceof Node ? one : String(one)));
    return element;
  }

  /** Make `old` like `made` with as few changes as possible: focus, selection and what was opened stay. */
  function become(old, made) {
    const before = [...old.childNodes], after = [...made.childNodes];
    after.forEach((next, index) => {
      const there = before[index];
      if (!there) old.append(next);
      else if (there.nodeName !== next.nodeName) there.replaceWith(next);
      else if (there.nodeType === Node.TEXT_NODE) { if (there.data !== next.data) there.data = next.data; }
      else {
        for (const { name } of [...there.attributes]) if (!next.hasAttribute(name) && name !== "open") there.removeAttribute(name);
        for (const { name, value } of next.attributes) if (there.getAttribute(name) !== value) there.setAttribute(name, value);
        become(there, next);
      }
    });
    before.slice(after.length).forEach((node) => node.remove());
  }
  const fill = (id, ...children) => become(at(id), make("div", {}, ...children));
  const say = (id, text) => { if (at(id).textContent !== text) at(id).textContent = text; };

  // --- numbers for people -----------------------------------------------------------------------

  const digits = (value, places = 0) => value.toLocaleString("en", { minimumFractionDigits: places, maximumFractionDigits: places });
  const number = (value) => digits(value, Number.isInteger(value) || Math.abs(value) >= 100 ? 0 : 1);
  const percent = (share) => `${digits(100 * share)} %`;
  const gib = (value) => digits(value, 1);
  function seconds(value) {
    if (value < 1) return [digits(1000 * value), "ms"];
    return [digits(value, value < 10 ? 2 : 1), "s"];
  }
  const span = (value) => seconds(value).join(" ");
  function duration(value) {
    const whole = Math.max(0, Math.round(value));
    if (whole < 60) return `${whole} s`;
    if (whole < 3600) return `${Math.floor(whole / 60)} min ${whole % 60} s`;
    if (whole < 86400) return `${Math.floor(whole / 3600)} h ${Math.floor(whole % 3600 / 60)} min`;
    return `${Math.floor(whole / 86400)} d ${Math.floor(whole % 86400 / 3600)} h`;
  }
  function bits(bytes) {
    const value = 8 * bytes;
    if (value >= 1e9) return [digits(value / 1e9, 1), "Gb/s"];
    if (value >= 1e6) return [digits(value / 1e6, 1), "Mb/s"];
    return [digits(value / 1e3, 0), "kb/s"];
  }
  const clock = (unix) => new Date(1000 * unix).toLocaleTimeString("en-GB");
  function moment(unix, now) {
    const date = new Date(1000 * unix), today = new Date(1000 * now);
    const day = date.toDateString() === today.toDateString() ? "" : `${date.toLocaleDateString("en-GB", { day: "numeric", month: "short" })} `;
    return day + clock(unix);
  }
  const unit = (text) => make("span", { class: "unit" }, ` ${text}`);
  const value = (shown, name) => known(shown) ? [shown, name && unit(name)] : [make("span", { "aria-hidden": "true" }, NONE), make("span", { class: "quiet" }, "not known")];
  const pair = (term, ...shown) => make("div", {}, make("dt", { class: "label" }, term), make("dd", {}, ...shown));

  /** Text in which `commands` stand between backticks. */
  const prose = (text) => text.split("`").map((part, index) => index % 2 ? make("code", {}, part) : part);

  // --- drawings ---------------------------------------------------------------------------------

  let history = [];

  /** A line over the last ten minutes, from nought; gaps where nothing was known. */
  function spark(key, name, words) {
    const now = history.length ? history[history.length - 1].at : 0;
    const points = history.map((point) => [point.at, point[key]]);
    const all = points.map(([, y]) => y).filter(known);
    if (all.length < 2) return make("svg:svg", { class: "spark", "aria-hidden": "true" });
    const top = Math.max(...all) || 1;
    const x = (time) => (300 * (1 - (now - time) / HISTORY_SECONDS)).toFixed(1);
    const y = (height) => (35 - 32 * height / top).toFixed(1);
    const runs = [[]];
    for (const [time, height] of points) {
      if (known(height)) runs[runs.length - 1].push([time, height]);
      else if (runs[runs.length - 1].length) runs.push([]);
    }
    const drawn = runs.filter((run) => run.length > 1);
    const line = drawn.map((run) => "M" + run.map(([time, height]) => `${x(time)} ${y(height)}`).join("L")).join("");
    const area = drawn.map((run) => `M${x(run[0][0])} 35L` + run.map(([time, height]) => `${x(time)} ${y(height)}`).join("L") + `L${x(run[run.length - 1][0])} 35Z`).join("");
    const text = `${name}, the last ${duration(now - points[0][0])}: ${words(Math.min(...all))} to ${words(top)}`;
    return make("svg:svg", { class: "spark", viewBox: "0 0 300 36", preserveAspectRatio: "none", role: "img", "aria-label": text },
      make("svg:path", { class: "area", d: area }), make("svg:path", { class: "base", d: "M0 35.5L300 35.5" }), make("svg:path", { d: line }));
  }

  /** A line of a machine, with its name beside it. */
  function trace(label, key, name, words) {
    return make("div", { class: "trace" }, make("span", { class: "label", "aria-hidden": "true" }, label), spark(key, name, words));
  }

  function meter(name, share, text, floor) {
    const width = Math.max(0, Math.min(100, 100 * share));
    return make("svg:svg", { class: "meter", viewBox: "0 0 100 10", preserveAspectRatio: "none", role: "meter", "aria-label": name, "aria-valuemin": 0, "aria-valuemax": 100, "aria-valuenow": width.toFixed(0), "aria-valuetext": text },
      make("svg:rect", { class: "back", width: 100, height: 10 }), make("svg:rect", { class: "fill", width, height: 10 }),
      known(floor) && make("svg:path", { class: "floor", d: `M${100 * floor} 0V10` }));
  }

  // --- the state --------------------------------------------------------------------------------

  function drawState(told) {
    const { headline, view } = told;
    say("word", headline.word);
    at("word").dataset.tone = headline.tone;
    fill("sentence", prose(headline.sentence));
    fill("fix", prose(headline.fix));
    document.title = `${headline.word} · glm53`;
    if (!view) return;
    const { snapshot } = view;
    say("model", snapshot.model);
    say("version", `glm53ctl ${snapshot.version}`);
    const since = Math.max(0, ...snapshot.ranks.map((rank) => rank.since));
    const took = snapshot.ranks.map((rank) => rank.start_seconds).filter(known);
    fill("facts",
      pair("for", since ? duration(view.at - since) : value(null)),
      pair("epoch", snapshot.epoch || value(null)),
      took.length ? pair("started in", duration(Math.max(...took))) : "",
      pair("API", make("span", { class: "code" }, snapshot.endpoint.replace(/^http:\/\//, ""))));
    const toneOf = { fail: "bad", warn: "warn", ok: "ok" };
    const notes = snapshot.findings.filter((finding) => finding.severity !== "ok" && finding.message !== headline.sentence).map((finding) =>
      make("div", { class: "note", "data-tone": toneOf[finding.severity] },
        make("p", {}, make("span", { class: "code" }, finding.code), finding.node && ` ${finding.node}`),
        make("p", {}, prose(finding.message)), finding.fix && make("p", { class: "soft" }, prose(finding.fix))));
    const said = [headline.sentence, headline.fix, ...snapshot.findings.map((finding) => finding.fix)];
    if (snapshot.next_step && !said.includes(snapshot.next_step)) {
      notes.push(make("div", { class: "note", "data-tone": "idle" }, make("p", { class: "label" }, "Next step"), make("p", {}, prose(snapshot.next_step))));
    }
    at("attention").hidden = !notes.length;
    fill("attention", notes);
  }

  // --- the engine -------------------------------------------------------------------------------

  const tile = (title, extra, ...parts) => make("div", { class: `tile ${extra}` }, make("h3", {}, title), ...parts);
  const big = (...parts) => make("p", { class: "big" }, ...parts);
  const small = (...parts) => make("p", { class: "small" }, ...parts.length ? parts : ["\u00a0"]);
  const spread = (one) => one ? `p50 ${span(one.p50)}, p95 ${span(one.p95)}` : "nothing in the last minutes";

  function drawEngine(view) {
    const engine = view.engine;
    if (!engine) return fill("engine", make("p", { class: "empty" }, `Nothing to show: ${view.engine_unknown || "nothing is known"}.`));
    const { ttft_s: ttft, acceptance, kv_pool_used: used, kv_pool_tokens: pool } = engine;
    const rate = (one) => known(one) ? value(number(one), "tok/s") : value(null);
    const tokens = (one) => `${number(one)} tok/s`;
    fill("engine",
      tile("Decode", "", big(rate(engine.generation_tokens_per_s)), small("between tokens ", spread(engine.itl_s)), spark("decode", "Decode", tokens)),
      tile("Prefill", "", big(rate(engine.prompt_tokens_per_s)), small(known(engine.prefix_hit_rate) ? `${percent(engine.prefix_hit_rate)} of prompts from the prefix cache` : "prefix cache: nothing asked"), spark("prefill", "Prefill", tokens)),
      tile("Time to first token", "", big(ttft ? value(...seconds(ttft.p50)) : value(null)), small(ttft ? `p50; p95 ${span(ttft.p95)}` : "nothing in the last minutes"), spark("ttft", "Time to first token", span)),
      tile("Requests", "", big(engine.running, unit("running")), small(`${engine.waiting} waiting`, engine.preemptions ? `, ${engine.preemptions} put back so far` : ""), spark("requests", "Requests", number)),
      tile("KV pool", "", big(known(used) ? value(digits(100 * used), "% used") : value(null)), small(known(pool) ? `${known(used) ? digits(used * pool) : NONE} of ${digits(pool)} tokens` : "size not known"), spark("kv", "KV pool", percent)),
      tile("Accepted drafts", "", big(acceptance ? value(digits(acceptance.length, 2), "tokens a step") : value(null)), small(acceptance ? `${acceptance.draft}, by position` : "nothing drafted in the last minutes"), acceptance ? places(acceptance) : ""));
  }

  const places = (acceptance) => make("ol", { class: "bars" }, acceptance.by_position.map((share, index) =>
    make("li", {}, make("svg:svg", { viewBox: "0 0 10 100", preserveAspectRatio: "none", "aria-hidden": "true" },
      make("svg:rect", { class: "column-track", width: 10, height: 100 }),
      make("svg:rect", { class: "column", width: 10, y: 100 - 100 * share, height: 100 * share })),
    make("span", { class: "quiet" }, `position ${index + 1}: `), `${digits(100 * share)}`, make("span", { class: "quiet" }, " %"))));

  // --- the machines -----------------------------------------------------------------------------

  const PHASE_TONES = { ready: "ok", starting: "busy", pairing: "busy", waiting: "busy", ending: "busy", stopped: "idle" };

  function drawNodes(told) {
    const { view, progress } = told;
    fill("nodes", view.nodes.map((node) => {
      const report = view.snapshot.ranks.find((one) => one.rank === node.rank);
      const phase = report ? report.phase : "no word";
      return make("article", { class: "card", "aria-label": `Rank ${node.rank}, ${node.name}` },
        make("header", {}, make("h3", {}, node.name), make("span", { class: "label" }, `rank ${node.rank}${node.here ? ", this machine" : ""}`),
          make("span", { class: "phase dot", "data-tone": report ? PHASE_TONES[phase] || "bad" : "bad" }, phase, report && ` for ${duration(view.at - report.since)}`)),
        report && phase === "starting" && steps(report, progress.find((one) => one.rank === node.rank), told.stages),
        report && known(report.retry_at) && report.retry_at > view.at && make("p", {}, `Tries again in ${duration(report.retry_at - view.at)}.`),
        memory(node, view.snapshot.watchdog), gpus(node), rails(node), unseen(node));
    }));
  }

  function steps(report, progress, stages) {
    const reached = stages.indexOf(report.stage);
    const words = [report.stage || "beginning", known(report.percent) ? ` ${report.percent} %` : "", known(report.compiling) ? `, compiling ${report.compiling}` : ""];
    if (progress && known(progress.seconds_left)) words.push(`, about ${duration(progress.seconds_left)} left${progress.left_of === "start" ? " until it serves" : ""}`);
    const patience = known(report.stage_seconds_left) ? `Counts as stalled in ${duration(report.stage_seconds_left)} unless something moves.` : "";
    return make("div", { class: "steps" },
      make("ol", { class: "stages", "aria-label": "Stages of the start" }, stages.map((stage, index) => {
        const done = index < reached ? 100 : index === reached ? report.percent ?? 50 : 0;
        return make("li", { "aria-current": index === reached ? "step" : null }, make("svg:svg", { viewBox: "0 0 100 4", preserveAspectRatio: "none", "aria-hidden": "true" },
          make("svg:rect", { class: "back", width: 100, height: 4 }), make("svg:rect", { class: "fill", width: done, height: 4 })), stage);
      })),
      make("p", {}, ...words), make("p", { class: "small" }, patience || "\u00a0"));
  }

  const MEMORY_TONES = { warn: "warn", refuse: "warn", stop: "bad" };

  function memory(node, watchdog) {
    const one = node.memory;
    if (!one) return null;
    const tone = one.available_gib < one.floor_gib ? "bad" : (node.here && watchdog && MEMORY_TONES[watchdog.memory]) || null;
    const text = `${gib(one.available_gib)} GiB available${known(one.total_gib) ? ` of ${gib(one.total_gib)}` : ""}`;
    const swap = one.swap_used_gib ? `swap ${gib(one.swap_used_gib)} GiB` : "";
    const pressure = one.pressure_full_percent ? `all wait for memory ${number(one.pressure_full_percent)} %` : "";
    return make("div", {},
      make("div", { class: "row" }, make("span", { "data-tone": tone, class: tone ? "toned" : null }, "Memory ", make("span", { class: "unit" }, text)),
        make("span", { class: "unit" }, [swap, pressure, `floor ${gib(one.floor_gib)} GiB`].filter(Boolean).join(", "))),
      known(one.total_gib) ? make("div", { "data-tone": tone }, meter(`Memory of ${node.name}`, 1 - one.available_gib / one.total_gib, text, 1 - one.floor_gib / one.total_gib)) : null,
      trace("available", `memory${node.rank}`, `Available memory of ${node.name}`, (value) => `${gib(value)} GiB`));
  }

  function gpus(node) {
    if (!node.gpus) return null;
    return node.gpus.map((gpu) => {
      const held = gpu.throttled_by && gpu.throttled_by.length ? gpu.throttled_by.join(", ") : null;
      return make("div", {}, make("p", { class: "label" }, gpu.name || "GPU"),
        make("dl", { class: "readings" },
          pair("temperature", value(gpu.temperature_c, "°C")),
          pair("clock", value(known(gpu.clock_mhz) ? digits(gpu.clock_mhz) : null, known(gpu.max_clock_mhz) ? `of ${digits(gpu.max_clock_mhz)} MHz` : "MHz")),
          pair("power", value(known(gpu.power_w) ? number(gpu.power_w) : null, "W")),
          pair("at work", value(gpu.utilisation_percent, "%"))),
        held && make("p", { class: "small toned", "data-tone": "warn" }, `Held down by: ${held}`));
    }).concat(trace("temperature", `heat${node.rank}`, `Temperature of ${node.name}`, (value) => `${value} °C`));
  }

  function rails(node) {
    if (!node.rails || !node.rails.length) return null;
    const flow = (one) => known(one) ? value(...bits(one)) : value(null);
    const cell = (label, shown, tone) => make("span", { class: "value" }, make("span", { class: "label" }, label), make("span", { "data-tone": tone, class: tone ? "toned" : null }, shown));
    return make("ul", { class: "rails", "aria-label": `Rails of ${node.name}` }, node.rails.map((rail) => {
      const tone = rail.lost ? "bad" : rail.carrier ? "ok" : "idle";
      const link = rail.carrier === false ? "no carrier" : [known(rail.speed_gbit_per_s) && `${digits(rail.speed_gbit_per_s)} Gb/s`, known(rail.mtu) && `MTU ${rail.mtu}`].filter(Boolean).join(", ");
      return make("li", {}, make("span", { class: "value" }, make("strong", { class: "dot", "data-tone": tone }, rail.rdma || rail.name), make("span", { class: "label" }, link || "link not known")),
        cell("in", flow(rail.receive_bytes_per_s)), cell("out", flow(rail.transmit_bytes_per_s)),
        cell("errors", known(rail.errors) ? digits(rail.errors) : value(null), rail.errors ? "warn" : null));
    }));
  }

  function unseen(node) {
    const reasons = new Map();
    const words = { memory: "Memory", gpus: "GPU", rails: "Rails" };
    for (const [what, why] of Object.entries(node.unknown)) reasons.set(why, [...(reasons.get(why) || []), words[what] || what]);
    return [...reasons].map(([why, what]) => make("p", { class: "small" }, `${what.join(", ")}: ${why}.`));
  }

  // --- the records ------------------------------------------------------------------------------

  function incident(one, now) {
    const tone = one.commanded ? "idle" : "bad";
    return make("li", { "data-tone": tone },
      make("time", { datetime: new Date(1000 * one.at).toISOString() }, moment(one.at, now)),
      make("div", {}, make("p", {}, make("span", { class: "code" }, one.code), make("span", { class: "small" }, ` rank ${one.rank}, epoch ${one.epoch}`)),
        make("p", {}, prose(one.message)),
        one.cause && make("p", { class: "soft" }, "Cause: ", prose(one.cause.message)), one.cause && one.cause.fix && make("p", { class: "soft" }, "Fix: ", prose(one.cause.fix)),
        one.action && make("p", { class: "small" }, `Done: ${one.action}${one.seen_by ? `, by ${one.seen_by}` : ""}`)));
  }

  function drawIncidents(view) {
    const all = view.incidents.map((one) => incident(one, view.at));
    const rest = all.length - SHOWN_INCIDENTS;
    fill("incidents", all.length ? make("ol", { class: "incidents" }, all.slice(0, SHOWN_INCIDENTS)) : make("p", { class: "soft" }, "None on record."),
      rest > 0 && make("details", {}, make("summary", {}, `${rest} earlier`), make("ol", { class: "incidents" }, all.slice(SHOWN_INCIDENTS))));
  }

  function median(values) {
    const sorted = [...values].sort((a, b) => a - b), half = sorted.length >> 1;
    return sorted.length % 2 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
  }

  // Needles are found or lost: a median would say one of the two.
  function middle(one) {
    return one.unit === "found" ? one.values.reduce((sum, v) => sum + v, 0) / one.values.length : median(one.values);
  }

  function drawBench(view) {
    const bench = view.bench;
    if (!bench) return fill("bench", make("p", { class: "soft" }, "None yet. ", make("span", { class: "code" }, "glm53ctl bench decode"), " makes one."));
    const when = new Date(bench.at);
    const rows = bench.cases.map((one) => {
      const base = Object.entries(one.baseline);
      return make("tr", {}, make("th", { scope: "row" }, one.name), make("td", {}, one.values.length ? value(number(middle(one)), one.unit) : value(null)),
        make("td", {}, base.length ? base.map(([name, of]) => `${name} ${number(of)}`).join(", ") : value(null)));
    });
    fill("bench", make("p", { class: "small" }, `${bench.kind}, ${moment(when / 1000, view.at)}`, bench.identity.engine && `, vLLM ${bench.identity.engine}`, bench.ok ? "" : ", some answers were not sane"),
      make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Cases of the last bench" }, make("table", {},
        make("thead", {}, make("tr", {}, ["case", bench.kind === "needle" ? "mean" : "median", "published"].map((name) => make("th", { scope: "col" }, name)))), make("tbody", {}, rows))));
  }

  // --- following --------------------------------------------------------------------------------

  let heard = 0;

  function link(tone, text) {
    at("link").dataset.tone = tone;
    say("link", text);
    document.documentElement.classList.toggle("stale", tone === "bad");
  }

  function draw(told) {
    heard = Date.now();
    drawState(told);
    if (!told.view) return link("bad", "nothing is known");
    link("ok", `live, ${clock(told.view.at)}`);
    if (known(told.point.at)) history.push(told.point);
    history = history.filter((point) => told.view.at - point.at <= HISTORY_SECONDS);
    drawEngine(told.view);
    drawNodes(told);
    drawIncidents(told.view);
    drawBench(told.view);
  }

  function follow() {
    const events = new EventSource("/events");
    events.addEventListener("history", (event) => { history = JSON.parse(event.data); });
    events.addEventListener("view", (event) => draw(JSON.parse(event.data)));
    events.addEventListener("error", () => {
      link("bad", heard ? `no word since ${clock(heard / 1000)}` : "no word yet");
      // The browser itself tries again after a lost connection, but not after a refusal.
      if (events.readyState === EventSource.CLOSED) setTimeout(follow, 1000 * AGAIN_SECONDS);
    });
  }

  document.addEventListener("DOMContentLoaded", () => {
    const name = () => say("theme", `Theme: ${theme}`);
    name();
    at("theme").addEventListener("click", () => {
      theme = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length];
      try { localStorage.setItem("theme", theme); } catch { /* private window: for this page only */ }
      wear();
      name();
    });
    setInterval(() => {
      if (heard && Date.now() - heard > 1000 * STALE_SECONDS) link("bad", `no word since ${clock(heard / 1000)}`);
    }, 1000);
    follow();
  });
})();
