"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const { items, questions, pictures } = data;
  const at = (id) => document.getElementById(id);
  const total = items.length * questions.length;
  // position counts questions: every item has all of them, in the annotator's order of items.
  let state = null;
  let unsaved = false;

  const storage = (() => {
    try {
      const probe = `pasta-${data.id}`;
      localStorage.setItem(probe, "1");
      localStorage.removeItem(probe);
      return localStorage;
    } catch {
      return null;
    }
  })();
  const key = (annotator) => `pasta-ratings:${data.id}:${annotator}`;
  const lastKey = `pasta-ratings:${data.id}`;

  function keep() {
    unsaved = true;
    if (!storage) return;
    try {
      storage.setItem(key(state.annotator), JSON.stringify({ answers: state.answers, position: state.position }));
      storage.setItem(lastKey, state.annotator);
    } catch {
      at("forgetful").hidden = false;
    }
  }

  function kept(annotator) {
    try {
      const found = JSON.parse(storage?.getItem(key(annotator)) ?? "null");
      return found && Array.isArray(found.answers) && found.answers.length === items.length ? found : null;
    } catch {
      return null;
    }
  }

  // A small generator of random numbers: the order must be the same in every browser.
  function shuffled(count, text) {
    let seed = 2166136261;
    for (const letter of text) seed = Math.imul(seed ^ letter.codePointAt(0), 16777619);
    const random = () => {
      seed = (seed + 0x6d2b79f5) | 0;
      let t = Math.imul(seed ^ (seed >>> 15), 1 | seed);
      t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
      return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
    };
    const order = Array.from({ length: count }, (_, i) => i);
    for (let i = count - 1; i > 0; i--) {
      const j = Math.floor(random() * (i + 1));
      [order[i], order[j]] = [order[j], order[i]];
    }
    return order;
  }

  const count = (answers) => answers.reduce((sum, one) => sum + Object.keys(one).length, 0);
  const itemAt = (position) => state.order[Math.floor(position / questions.length)];
  const questionAt = (position) => position % questions.length;

  function make(tag, properties = {}, ...children) {
    const element = Object.assign(document.createElement(tag), properties);
    element.append(...children);
    return element;
  }

  function show(screen) {
    for (const id of ["start", "rate", "done"]) at(id).hidden = id !== screen;
    window.scrollTo(0, 0);
  }

  function start() {
    show("start");
    let last = "";
    try {
      last = storage?.getItem(lastKey) ?? "";
    } catch { /* nothing was kept */ }
    at("annotator").value = last;
    tellResume();
    at("annotator").focus();
  }

  function tellResume() {
    const found = kept(at("annotator").value.trim());
    const given = found ? count(found.answers) : 0;
    at("resume").textContent = given ? `${given} of ${total} answers are kept in this browser; you go on where you stopped.` : "";
    at("begin").textContent = given ? "Continue" : "Begin";
  }

  // Answers by question: a question may be called "constructor".
  const bare = (answers) => Object.assign(Object.create(null), answers);

  function begin(annotator) {
    const found = kept(annotator);
    state = {
      annotator,
      order: shuffled(items.length, `${data.seed}:${annotator}`),
      answers: found ? found.answers.map(bare) : items.map(() => bare()),
      position: found ? Math.min(Math.max(found.position, 0), total) : 0,
    };
    keep();
    unsaved = false;
    state.position < total ? rate() : done();
  }

  function side(picture, caption, alternative) {
    return make("figure", {}, make("img", { src: pictures[picture], alt: alternative }), make("figcaption", {}, ...caption));
  }

  function concepts(list) {
    const rows = list.map(([name, value, share]) => {
      const bar = make("i", { className: share < 0 ? "against" : "" });
      bar.style.width = `${Math.max(Math.abs(share) * 100, 1)}%`;
      const track = make("span", { className: "track" }, bar);
      track.setAttribute("aria-hidden", "true");
      return make("li", {}, make("span", { className: "name", textContent: name }), track, make("span", { className: "value", textContent: value }));
    });
    const against = list.some(([, , share]) => share < 0);
    const caption = make("figcaption", { textContent: "What mattered, the most important first" });
    if (against) caption.append("; ", make("span", { className: "against", textContent: "blue: spoke against it" }));
    return make("figure", {}, make("ol", { className: "concepts" }, ...rows), caption);
  }

  const POINTS = 5;

  function section(parts, heading, imageName) {
    const scale = make("span", { className: "scale" });
    scale.setAttribute("aria-hidden", "true");
    // The colours of a picture drawn elsewhere are not known.
    const told = parts.drawn ? ["Its explanation"] : ["Mattered little", scale, "much"];
    const meaning = parts.drawn ? "as it was drawn" : "blue parts mattered little, red parts much";
    const explanation = parts.map ? side(parts.map, told, `Explanation of ${imageName}: ${meaning}`) : concepts(parts.concepts);
    const sides = make("div", { className: parts.map ? "sides" : "sides listed" }, side(parts.image, [imageName[0].toUpperCase() + imageName.slice(1)], imageName), explanation);
    const box = make("div", { className: "section" });
    if (heading) box.append(make("h2", { textContent: heading }));
    box.append(sides);
    return box;
  }

  let drawn = null;
  function draw(index, question) {
    const item = items[index];
    const change = questions[question].change ? questions[question].name : "";
    const name = `${index}:${change}`;
    if (drawn === name) return;
    at("says").replaceChildren("The program sees: ", make("b", { textContent: item.label }));
    at("says").hidden = !item.label;
    const boxes = [section(item.sections.shown, change ? "Before" : "", "the image")];
    if (change) {
      const after = item.sections[change];
      const how = questions[question].change === "light" ? "lightly changed" : "strongly changed";
      const seen = after.label ? `: the program now sees ${after.label}` : "";
      boxes.push(section(after, `After: ${how}${seen}`, `the ${how} image`));
    }
    at("sections").replaceChildren(...boxes);
    at("rate").classList.toggle("two", Boolean(change));
    drawn = name;
  }

  function build() {
    const fields = questions.map((question, number) => {
      const field = make("fieldset", { id: `field-${number}`, tabIndex: -1 });
      field.append(make("legend", {}, make("small", { textContent: `${number + 1}.` }), ` ${question.text}`));
      const points = make("div", { className: "points" });
      for (let vote = 1; vote <= POINTS; vote++) {
        const end = { 1: question.ends[0], 5: question.ends[1] }[vote];
        const input = make("input", { type: "radio", name: `question-${number}`, value: String(vote) });
        input.setAttribute("aria-label", end ? `${vote}, ${end}` : String(vote));
        // The space bar clicks too, without a pointer: people may still be choosing then.
        input.addEventListener("click", (event) => {
          const position = base() + number;
          answer(number, vote);
          if (event.detail > 0) go(position + 1);
        });
        input.addEventListener("focus", () => {
          if (questionAt(state.position) !== number) go(base() + number, false);
        });
        points.append(make("label", {}, input, String(vote)));
      }
      field.append(points);
      const below = make("p", { className: "ends" }, ...question.ends.map((textContent) => make("span", { textContent })));
      below.setAttribute("aria-hidden", "true");
      field.append(below);
      return field;
    });
    at("questions").replaceChildren(...fields);
  }

  // The browser has a meaning of its own for a few names of inputs, "length" for instance.
  const inputs = (number) => at("questions").elements[`question-${number}`];
  const base = () => state.position - questionAt(state.position);

  function answer(number, vote) {
    state.answers[itemAt(state.position)][questions[number].name] = vote;
    inputs(number).value = String(vote);
    keep();
    tell();
  }

  function tell() {
    const given = count(state.answers);
    at("place").textContent = `Explanation ${Math.floor(state.position / questions.length) + 1} of ${items.length}`;
    at("progress").value = given / total;
    at("given").textContent = `${given} of ${total} answers`;
  }

  function go(position, focus = true) {
    state.position = Math.min(Math.max(position, 0), total);
    keep();
    if (state.position >= total) done();
    else rate(focus);
  }

  function rate(focus = true) {
    if (at("rate").hidden) show("rate");
    const index = itemAt(state.position);
    const now = questionAt(state.position);
    const fresh = drawn === null || !drawn.startsWith(`${index}:`);
    draw(index, now);
    questions.forEach((question, number) => {
      const vote = state.answers[index][question.name];
      for (const input of inputs(number)) input.checked = input.value === String(vote);
      at(`field-${number}`).classList.toggle("now", number === now);
      if (number === now) at(`field-${number}`).setAttribute("aria-current", "step");
      else at(`field-${number}`).removeAttribute("aria-current");
    });
    at("back").disabled = state.position === 0;
    tell();
    if (fresh) {
      at("spoken").textContent = `${at("place").textContent}. ${items[index].label ? at("says").textContent : ""}`;
      window.scrollTo(0, 0);
    }
    if (focus) {
      // The question, not its first point: a ring around the 1 would look like an answer.
      at(`field-${now}`).focus({ preventScroll: true });
      if (!fresh) at(`field-${now}`).scrollIntoView({ block: "nearest" });
    }
  }

  function done() {
    drawn = null;
    show("done");
    const given = count(state.answers);
    const left = total - given;
    at("done-title").textContent = left ? "Not finished yet" : "Thank you, that was all";
    at("tally").textContent = left
      ? `You gave ${given} of ${total} answers. Missing answers are allowed: the file then has no value for them.`
      : `You gave all ${total} answers. Save them, and send the file to whoever asked you.`;
    at("missing").hidden = !left;
    at("saved").textContent = "";
    at("save").focus();
  }

  function firstMissing() {
    for (let position = 0; position < total; position++) {
      if (!(questions[questionAt(position)].name in state.answers[itemAt(position)])) return position;
    }
    return 0;
  }

  // A cell of CSV; a spreadsheet computes what begins with one of these signs.
  const cell = (value) => {
    const text = /^[=+\-@\t\r]/.test(value) ? `'${value}` : String(value);
    return /[",;\n\r\t]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };

  function ratings() {
    const columns = ["image", "explainer", "label", "explanation"];
    const rows = items.map((item, i) => [item.record, state.answers[i]]).filter(([, votes]) => Object.keys(votes).length);
    const lines = rows.map(([record, votes]) => [
      ...columns.map((name) => record[name]), state.annotator, ...questions.map(({ name }) => votes[name] ?? ""),
    ]);
    const head = [...columns, "rater", ...questions.map(({ name }) => name)];
    return [head, ...lines].map((line) => line.map(cell).join(",")).join("\r\n") + "\r\n";
  }

  function save() {
    const name = state.annotator.replace(/[^\p{L}\p{N}.+-]+/gu, "-");
    const blob = new Blob(["\ufeff", ratings()], { type: "text/csv" });
    const link = make("a", { href: URL.createObjectURL(blob), download: `ratings_${name}.csv` });
    document.body.append(link);
    link.click();
    link.remove();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
    unsaved = false;
    at("saved").textContent = `Saved as ${link.download} where this browser puts its downloads.`;
  }

  // What ↑ and ↓ do: the point before or after the one chosen, without going on.
  function choose(step) {
    const now = questionAt(state.position);
    const vote = state.answers[itemAt(state.position)][questions[now].name] ?? (step > 0 ? 0 : POINTS + 1);
    const next = Math.min(Math.max(vote + step, 1), POINTS);
    answer(now, next);
    inputs(now)[next - 1].focus();
  }

  document.addEventListener("keydown", (event) => {
    if (at("rate").hidden || event.ctrlKey || event.metaKey || event.altKey) return;
    const onButton = event.target instanceof HTMLButtonElement;
    if (/^[1-5]$/.test(event.key)) {
      if (event.repeat) return;
      answer(questionAt(state.position), Number(event.key));
      go(state.position + 1);
    } else if (event.key === "ArrowLeft" || event.key === "Backspace") go(state.position - 1);
    else if (event.key === "ArrowRight" || (event.key === "Enter" && !onButton)) go(state.position + 1);
    else if (event.key === "ArrowDown" || event.key === "ArrowUp") choose(event.key === "ArrowDown" ? 1 : -1);
    else return;
    event.preventDefault();
  });

  at("name-form").addEventListener("submit", (event) => {
    event.preventDefault();
    const annotator = at("annotator").value.trim();
    if (annotator) begin(annotator);
  });
  at("annotator").addEventListener("input", tellResume);
  at("questions").addEventListener("submit", (event) => event.preventDefault());
  at("back").addEventListener("click", () => go(state.position - 1));
  at("on").addEventListener("click", () => go(state.position + 1));
  at("leave").addEventListener("click", done);
  at("save").addEventListener("click", save);
  at("missing").addEventListener("click", () => go(firstMissing()));
  at("again").addEventListener("click", () => go(0));
  window.addEventListener("beforeunload", (event) => {
    if (unsaved && !storage) event.preventDefault();
  });

  at("forgetful").hidden = Boolean(storage);
  build();
  start();
})();
