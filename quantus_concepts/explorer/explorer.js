"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const at = (id) => document.getElementById(id);
  const floats = (text) =>
    text === undefined ? null : new Float32Array(Uint8Array.from(atob(text), (each) => each.charCodeAt(0)).buffer);
  const [n, nConcepts, nClasses] = [data.pictures.length, data.concepts.length, data.classes.length];
  const values = floats(data.values), logits = floats(data.logits), weight = floats(data.weight);
  const bias = floats(data.bias), residual = floats(data.residual), parts = floats(data.parts);
  const absent = floats(data.absent);
  const [lows, highs] = data.ends;

  // What is shown; all of it is in the address.
  const state = { image: 0, shown: [], fixed: new Map(), opacity: 70, sort: "", class: "", has: "", order: data.kind };

  /* ---- numbers ---- */
  const signed = (number, digits = 2) =>
    Number.isFinite(number) ? `${number < 0 ? "−" : "+"}${Math.abs(number).toFixed(digits)}` : "undefined";
  const percent = (share) => `${(100 * share).toFixed(share > 0.0995 && share < 0.9995 ? 0 : 1)} %`;
  const valueOf = (i, j, fixed = state.fixed) => (fixed.has(j) ? fixed.get(j) : values[i * nConcepts + j]);

  function logitsOf(i, fixed = state.fixed) {
    if (!data.linear || !fixed.size) return Float64Array.from(logits.subarray(i * nClasses, (i + 1) * nClasses));
    const found = new Float64Array(nClasses);
    for (let k = 0; k < nClasses; k++) {
      let sum = bias[k] + (residual ? residual[i * nClasses + k] : 0);
      for (let j = 0; j < nConcepts; j++) sum += weight[k * nConcepts + j] * valueOf(i, j, fixed);
      found[k] = sum;
    }
    return found;
  }

  function shares(row) {
    const highest = row.reduce((a, b) => Math.max(a, b), -Infinity);
    const powers = row.map((each) => Math.exp(each - highest));
    const sum = powers.reduce((a, b) => a + b, 0);
    return powers.map((each) => each / sum);
  }

  const best = (row) => row.reduce((top, each, k) => (each > row[top] ? k : top), 0);
  const predicted = Array.from({ length: n }, (_, i) => best(logits.subarray(i * nClasses, (i + 1) * nClasses)));
  // What a concept does for a class: its effect, counted from its absent level against the mean of all classes, or,
  // where no level is known, its contribution, weight times value.
  const mean = data.linear && absent
    ? Float64Array.from({ length: nConcepts }, (_, j) => {
        let sum = 0;
        for (let k = 0; k < nClasses; k++) sum += weight[k * nConcepts + j];
        return sum / nClasses;
      })
    : null;
  function partOf(i, j, k, fixed) {
    if (!data.linear) return parts[i * nConcepts + j];
    const theta = weight[k * nConcepts + j], value = valueOf(i, j, fixed);
    return absent ? (theta - mean[j]) * (value - absent[j]) : theta * value;
  }
  const isPresent = (i, j) => data.threshold !== null && values[i * nConcepts + j] >= data.threshold;
  const isLabelled = (i, j) => (data.present ? data.present[i][j] === "1" : null);

  /* ---- elements; names are only ever written as text ---- */
  function make(tag, { text, ...attributes } = {}, children = []) {
    const element = document.createElement(tag);
    if (text !== undefined) element.textContent = text;
    for (const [name, value] of Object.entries(attributes)) {
      if (name in element && name !== "list") element[name] = value;
      else element.setAttribute(name, value);
    }
    element.append(...children);
    return element;
  }
  const fill = (select, options) =>
    select.replaceChildren(...options.map(([value, text]) => make("option", { value, text })));
  const bar = (kind, left, width) => make("i", { className: kind, style: `left:${left}%;width:${width}%` });

  /* ---- maps ---- */
  const sheets = new Map();
  function sheet(i) {
    if (!sheets.has(i)) {
      sheets.set(i, new Promise((resolve) => {
        const image = new Image();
        image.onload = () => {
          const canvas = make("canvas", { width: image.width, height: image.height });
          const context = canvas.getContext("2d", { willReadFrequently: true });
          context.drawImage(image, 0, 0);
          resolve(context.getImageData(0, 0, image.width, image.height));
        };
        image.src = data.sheets[i];
      }));
      // A few are enough to go back and forth.
      if (sheets.size > 8) sheets.delete(sheets.keys().next().value);
    }
    return sheets.get(i);
  }

  async function draw(canvas, i, j) {
    const { width, data: levels } = await sheet(i);
    const { h, w, columns, low, high, from, to } = data.map;
    const top = Math.floor(j / columns) * h, left = (j % columns) * w;
    const [rows, cols] = [canvas.height, canvas.width];
    const context = canvas.getContext("2d");
    const picture = context.createImageData(cols, rows);
    const level = (y, x) => levels[4 * ((top + y) * width + left + x)];
    // Bilinear between the middles of places, as the library draws.
    for (let y = 0; y < rows; y++) {
      const v = Math.min(Math.max(((y + 0.5) * h) / rows - 0.5, 0), h - 1), y0 = Math.floor(v), y1 = Math.min(y0 + 1, h - 1);
      for (let x = 0; x < cols; x++) {
        const u = Math.min(Math.max(((x + 0.5) * w) / cols - 0.5, 0), w - 1), x0 = Math.floor(u), x1 = Math.min(x0 + 1, w - 1);
        const above = level(y0, x0) + (u - x0) * (level(y0, x1) - level(y0, x0));
        const below = level(y1, x0) + (u - x0) * (level(y1, x1) - level(y1, x0));
        const value = low + ((above + (v - y0) * (below - above)) / 255) * (high - low);
        const t = Math.min(Math.max((value - from) / (to - from), 0), 1);
        const [r, g, b] = data.colours[Math.min(255, Math.floor(256 * t))];
        picture.data.set([r, g, b, Math.round(255 * t)], 4 * (y * cols + x));
      }
    }
    context.putImageData(picture, 0, 0);
  }

  /* ---- which images ---- */
  function ordered() {
    const kept = [...Array(n).keys()].filter((i) => {
      if (state.class !== "" && predicted[i] !== +state.class && data.labels?.[i] !== +state.class) return false;
      const [what, j] = state.has.split(":");
      if (what === "present") return isPresent(i, +j);
      if (what === "absent") return !isPresent(i, +j);
      if (what === "differs") return isPresent(i, +j) !== isLabelled(i, +j);
      return true;
    });
    const score = data.scores[state.sort];
    if (!score) return kept;
    const [numbers, lowest] = score;
    // What is undefined comes last.
    const rank = (i) => (numbers[i] === null ? Infinity : lowest ? numbers[i] : -numbers[i]);
    return kept.map((i) => [rank(i), i]).sort((a, b) => (a[0] === b[0] ? a[1] - b[1] : a[0] - b[0])).map(([, i]) => i);
  }

  function showStrip() {
    const images = ordered();
    at("count").textContent = `${images.length} of ${n} images`;
    const numbers = data.scores[state.sort]?.[0];
    at("strip").replaceChildren(...images.map((i) => {
      const wrong = data.labels && data.labels[i] !== predicted[i];
      const score = numbers ? (numbers[i] === null ? "undefined" : numbers[i].toFixed(2)) : "";
      const button = make("button", { type: "button", className: wrong ? "wrong" : "" }, [
        make("img", { src: data.pictures[i], alt: "", loading: "lazy" }),
        `${i}${wrong ? " ✗" : ""} ${score}`,
      ]);
      button.setAttribute("aria-label", `Image ${i}, predicted ${data.classes[predicted[i]]}${wrong ? ", wrong" : ""}${score && `, ${state.sort} ${score}`}`);
      if (i === state.image) button.setAttribute("aria-current", "true");
      button.dataset.image = i;
      button.addEventListener("click", () => go(i));
      return make("li", {}, [button]);
    }));
    const worst = numbers ? images.filter((i) => numbers[i] !== null).slice(0, 5) : [];
    at("worst").replaceChildren(...(worst.length ? ["Worst by ", make("b", { text: state.sort }), ": "] : []),
      ...worst.flatMap((i, place) => {
        const link = make("a", { href: `#image=${i}`, text: `image ${i} (${numbers[i].toFixed(2)})` });
        link.addEventListener("click", (event) => { event.preventDefault(); go(i); });
        return place ? [", ", link] : [link];
      }));
  }

  function go(i) {
    state.image = i;
    state.fixed = new Map();
    state.shown = strongest(i);
    show();
  }

  function step(by) {
    const images = ordered();
    const place = images.indexOf(state.image);
    if (images.length) go(images[Math.min(Math.max(place + by, 0), images.length - 1)]);
  }

  /* ---- one image ---- */
  const strongest = (i) => ranked(i, data.kind).slice(0, 3);
  function ranked(i, order) {
    const every = [...Array(nConcepts).keys()];
    const number = (j) => (order === "value" ? values[i * nConcepts + j] : Math.abs(partOf(i, j, predicted[i], new Map())));
    if (order === "name") return every.sort((a, b) => data.concepts[a].localeCompare(data.concepts[b]));
    return every.sort((a, b) => number(b) - number(a) || a - b);
  }

  function showTiles() {
    const i = state.image;
    const size = data.ratio > 1 ? [Math.round(160 / data.ratio), 160] : [160, Math.round(160 * data.ratio)];
    const tile = (j) => {
      const what = j === null ? "image alone" : data.concepts[j];
      const image = make("img", { src: data.pictures[i], alt: j === null ? `Image ${i}` : `Image ${i} under the map of ${what}` });
      const stack = make("span", { className: "stack" }, [image]);
      if (j !== null) {
        const canvas = make("canvas", { width: size[0], height: size[1], "aria-hidden": "true" });
        canvas.style.opacity = state.opacity / 100;
        canvas.dataset.concept = j;
        draw(canvas, i, j);
        stack.append(canvas);
      }
      const caption = make("figcaption", { text: j === null ? what : `${what} ${signed(valueOf(i, j))}` });
      if (data.weak[j]) caption.append(make("span", { className: "weak", text: data.weak[j] }));
      return make("figure", {}, [stack, caption]);
    };
    at("tiles").replaceChildren(...[null, ...state.shown].map(tile));
    at("tiles").className = state.shown.length === 0 ? "one" : "";
    const wrong = data.labels && data.labels[i] !== predicted[i];
    at("title").textContent = `Image ${i}: ${data.classes[predicted[i]]}`;
    const label = data.labels ? `Label: ${data.classes[data.labels[i]] ?? data.labels[i]}${wrong ? " (misclassified). " : ". "}` : "";
    at("about").textContent = label + Object.entries(data.scores).filter(([, [numbers]]) => numbers[i] !== null)
      .map(([name, [numbers]]) => `${name}: ${numbers[i].toFixed(2)}`).join(" · ");
  }

  function showClasses() {
    const i = state.image;
    const before = shares(logitsOf(i, new Map())), now = shares(logitsOf(i));
    const order = [...Array(nClasses).keys()].sort((a, b) => now[b] - now[a]);
    const rows = [...new Set([...order.slice(0, 4), predicted[i], ...(data.labels ? [data.labels[i]] : [])])].filter((k) => k < nClasses);
    at("classes").replaceChildren(...rows.map((k) => {
      const change = now[k] - before[k];
      const track = make("span", { className: "track", "aria-hidden": "true" }, [bar("fill", 0, 100 * now[k])]);
      if (state.fixed.size) track.append(make("i", { className: "before", style: `left:${100 * before[k]}%` }));
      const words = percent(now[k]) + (state.fixed.size ? ` (${Math.abs(change) < 0.005 ? "±0" : signed(100 * change, 0)})` : "");
      const label = data.labels && data.labels[i] === k ? " (label)" : "";
      const row = make("li", { className: k === order[0] ? "now" : "" }, [
        make("span", { className: "name", text: data.classes[k] + label }), track, make("span", { className: "number", text: words }),
      ]);
      row.dataset.class = k;
      return row;
    }));
    const [was, is] = [predicted[i], order[0]];
    at("reset").hidden = !state.fixed.size;
    at("change").textContent = !data.linear
      ? "The head of this model is not linear: its concepts cannot be corrected on this page" + (data.level ? "." : ", and contributions are weight times value near this image.")
      : !state.fixed.size ? "Move a slider to correct a concept and see the class change."
      : was === is ? `${state.fixed.size} corrected: the prediction stays ${data.classes[is]} (${percent(before[was])} before, ${percent(now[is])} now).`
      : `${state.fixed.size} corrected: the prediction changes from ${data.classes[was]} (${percent(before[was])}) to ${data.classes[is]} (${percent(now[is])}).`;
  }

  // Where a number lies on a track, in percent.
  const inside = (number, low, high) => Math.min(Math.max((100 * (number - low)) / (high - low || 1), 0), 100);

  function fillRow(row) {
    const i = state.image, j = +row.dataset.concept, k = predicted[i], value = valueOf(i, j);
    const reach = reachOf(i), part = partOf(i, j, k);
    row.className = state.fixed.has(j) ? "fixed" : "";
    const track = make("span", { className: "track", "aria-hidden": "true" });
    if (data.random_values) {
      const [a, b] = data.random_values[i].map((each) => inside(each, lows[j], highs[j]));
      track.append(bar("band", a, b - a));
    }
    if (data.threshold !== null) track.append(make("i", { className: "zero", style: `left:${inside(data.threshold, lows[j], highs[j])}%` }));
    track.append(make("i", { className: "dot", style: `left:${inside(value, lows[j], highs[j])}%` }));
    const [before, number, adds] = [values[i * nConcepts + j], row.querySelector(".value"), row.querySelector(".adds")];
    const random = data.random_values?.[i];
    const text = make("span", { text: state.fixed.has(j) ? `${signed(value)} (was ${signed(before)})` : signed(value) });
    const place = random && !state.fixed.has(j) ? (before > random[1] ? "above" : before < random[0] ? "below" : "within") : "";
    const range = make("span", { className: `range${place === "within" ? "" : " beyond"}`, text: place });
    if (place) range.append(make("span", { className: "unseen", text: " the range of random directions" }));
    number.replaceChildren(text, range, track);
    const middle = make("span", { className: "track", "aria-hidden": "true" });
    if (data.random_parts) {
      const [a, b] = data.random_parts[i].map((each) => inside(each, -reach, reach));
      middle.append(bar("band", a, b - a));
    }
    const end = inside(part, -reach, reach);
    middle.append(bar(part >= 0 ? "for" : "against", Math.min(50, end), Math.abs(end - 50)), make("i", { className: "zero", style: "left:50%" }));
    adds.replaceChildren(make("span", { text: signed(part) }), middle);
    const slider = row.querySelector("input[type=range]");
    if (slider) {
      slider.value = value;
      slider.setAttribute("aria-valuetext", `${signed(value)}${state.fixed.has(j) ? ", corrected" : ""}`);
      const high = value >= turn(j);
      const button = row.querySelector("button");
      button.textContent = state.fixed.has(j) ? "undo" : high ? "→ absent" : "→ present";
      button.setAttribute("aria-label", state.fixed.has(j) ? `Undo ${data.concepts[j]}` : `Set ${data.concepts[j]} to ${high ? "absent" : "present"}`);
    }
  }

  const reachOf = (i) => {
    let most = 1e-9;
    for (let j = 0; j < nConcepts; j++) most = Math.max(most, Math.abs(partOf(i, j, predicted[i], new Map())));
    for (const each of data.random_parts?.[i] ?? []) most = Math.max(most, Math.abs(each));
    return most;
  };
  const turn = (j) => (data.threshold === null ? (lows[j] + highs[j]) / 2 : data.threshold);

  function showConcepts() {
    const i = state.image;
    at("to").textContent = `${data.level ? "Effect on" : "Contribution to"} ${data.classes[predicted[i]]}`;
    at("to").title = data.level
      ? `What the logit of the class, less the mean of all classes, loses if the concept is set to its ${data.level}.`
      : "Weight times value: it depends on what a value of 0 means, as the model knows no value of absent concepts.";
    const wanted = at("find").value.toLowerCase();
    const rows = ranked(i, state.order).filter((j) => data.concepts[j].toLowerCase().includes(wanted));
    at("concepts").replaceChildren(...rows.map((j) => {
      const box = make("input", { type: "checkbox", checked: state.shown.includes(j) });
      box.setAttribute("aria-label", `Show the map of ${data.concepts[j]}`);
      box.addEventListener("change", () => {
        state.shown = box.checked ? [...state.shown, j] : state.shown.filter((each) => each !== j);
        showTiles();
        remember();
      });
      const labelled = isLabelled(i, j);
      const mark = labelled === null ? "" : labelled ? "✓\u00a0" : "✗\u00a0";
      const name = make("th", { scope: "row" }, [
        make("span", { className: "concept" }, [make("span", { text: mark, "aria-hidden": "true" }), data.concepts[j]]),
      ]);
      if (data.weak[j]) name.append(make("span", { className: "weak", text: data.weak[j] }));
      if (labelled !== null) name.append(make("span", { className: "unseen", text: labelled ? ", labelled present" : ", labelled absent" }));
      const row = make("tr", {}, [make("td", {}, [box]), name, make("td", { className: "cell value" }), make("td", { className: "cell adds" })]);
      row.dataset.concept = j;
      if (data.linear) {
        const slider = make("input", { type: "range", step: "any", min: lows[j], max: highs[j] });
        slider.setAttribute("aria-label", `Value of ${data.concepts[j]}`);
        slider.addEventListener("input", () => correct(j, +slider.value, row));
        const button = make("button", { type: "button" });
        button.addEventListener("click", () =>
          correct(j, state.fixed.has(j) ? null : valueOf(i, j) >= turn(j) ? lows[j] : highs[j], row));
        row.append(make("td", { className: "fix" }, [make("div", {}, [slider, button])]));
      }
      fillRow(row);
      return row;
    }));
  }

  function correct(j, value, row) {
    if (value === null) state.fixed.delete(j);
    else state.fixed.set(j, value);
    fillRow(row);
    showClasses();
    remember();
  }

  /* ---- the address ---- */
  function remember() {
    const said = new URLSearchParams({ image: state.image });
    if (state.shown.length) said.set("concept", state.shown.join(","));
    if (state.fixed.size) said.set("set", [...state.fixed].map(([j, value]) => `${j}:${+value.toPrecision(9)}`).join(","));
    if (state.opacity !== 70) said.set("opacity", state.opacity);
    for (const name of ["sort", "class", "has"]) if (state[name] !== "") said.set(name, state[name]);
    if (state.order !== data.kind) said.set("order", state.order);
    try {
      history.replaceState(null, "", `#${said}`);
    } catch {
      // In the frame of a notebook there is no address to write.
    }
  }

  function recall() {
    const said = new URLSearchParams(location.hash.slice(1));
    const whole = (text, end) => (/^\d+$/.test(text ?? "") && +text < end ? +text : null);
    state.image = whole(said.get("image"), n) ?? data.start;
    const shown = (said.get("concept") ?? "").split(",").map((each) => whole(each, nConcepts)).filter((each) => each !== null);
    state.shown = said.has("concept") ? [...new Set(shown)] : strongest(state.image);
    state.fixed = new Map();
    for (const pair of data.linear ? (said.get("set") ?? "").split(",") : []) {
      const [j, value] = pair.split(":");
      if (whole(j, nConcepts) !== null && value && Number.isFinite(+value)) state.fixed.set(+j, +value);
    }
    state.opacity = whole(said.get("opacity"), 101) ?? 70;
    for (const name of ["sort", "class", "has", "order"]) {
      const value = said.get(name) ?? "";
      if ([...at(name).options].some((each) => each.value === value)) state[name] = value;
      else state[name] = name === "order" ? data.kind : "";
    }
  }

  function show() {
    for (const name of ["sort", "class", "has", "order", "opacity"]) at(name).value = state[name];
    showStrip();
    showTiles();
    showClasses();
    showConcepts();
    remember();
    at("strip").querySelector("[aria-current]")?.scrollIntoView({ block: "nearest", inline: "nearest" });
  }

  /* ---- start ---- */
  fill(at("sort"), [["", "as given"], ...Object.entries(data.scores).map(([name, [, lowest]]) => [name, `${name}, ${lowest ? "lowest" : "highest"} first`])]);
  fill(at("class"), [["", "all classes"], ...data.classes.map((name, k) => [String(k), name])]);
  const filters = data.threshold === null ? [] : [["present", "present"], ["absent", "absent"], ...(data.present ? [["differs", "differs from its label"]] : [])];
  fill(at("has"), [["", "all concepts"], ...data.concepts.flatMap((name, j) => filters.map(([what, text]) => [`${what}:${j}`, `${name}: ${text}`]))]);
  for (const name of ["sort", "class", "has"]) {
    at(name).addEventListener("change", () => {
      state[name] = at(name).value;
      const images = ordered();
      if (images.length && (name === "sort" || !images.includes(state.image))) go(images[0]);
      else show();
    });
  }
  at("order").addEventListener("change", () => { state.order = at("order").value; showConcepts(); remember(); });
  at("find").addEventListener("input", showConcepts);
  at("opacity").addEventListener("input", () => {
    state.opacity = +at("opacity").value;
    for (const canvas of at("tiles").querySelectorAll("canvas")) canvas.style.opacity = state.opacity / 100;
    remember();
  });
  at("reset").addEventListener("click", () => { state.fixed = new Map(); show(); at("title").focus(); });
  at("back").addEventListener("click", () => step(-1));
  at("on").addEventListener("click", () => step(1));
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest?.("input, select, textarea")) return;
    const by = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity }[event.key];
    if (by === undefined) return;
    event.preventDefault();
    step(by);
    if (event.target.closest?.("#strip")) at("strip").querySelector("[aria-current]")?.focus();
  });
  window.addEventListener("hashchange", () => { recall(); show(); });
  at("low").textContent = signed(data.map.from, 1);
  at("high").textContent = signed(data.map.to, 1);
  at("colours").style.background = `linear-gradient(90deg, ${[0, 64, 128, 192, 255].map((c) => `rgb(${data.colours[c].join()})`).join()})`;
  at("units").textContent = "One scale for all maps and images" + (data.exact ? "; the mean of a map is the concept's value." : ". Maps are local evidence for the concept, not a decomposition of its value.");
  at("key").textContent = "Value: the mark is this image" + (data.threshold === null ? "" : ", the line the threshold") +
    (data.random_values ? "; grey is where 95 % of random directions lie, and the word says whether the value is above, within or below." : ".") + (data.present ? " ✓ and ✗: labelled present and absent." : "") +
    (data.weak.some(Boolean) ? " Weak direction: it cannot be distinguished from random images, so neither its value nor its map means the concept." : "");
  at("correct").hidden = !data.linear;
  recall();
  show();
})();
