// The page's only script: it sends forms and shows what comes back. Every rule and every number is made by the server.
"use strict";

(() => {
  const waiting = new Map(); // form -> {controller, action}

  /** Put the new contents of elements in place, by their id; keep the focus where it was. */
  function place(html, isAside) {
    const fresh = new DOMParser().parseFromString(html, "text/html");
    const active = document.activeElement;
    const id = active && active.id;
    const caret = active && "selectionStart" in active && active.type === "text" ? [active.selectionStart, active.selectionEnd] : null;
    for (const part of fresh.querySelectorAll("template[data-part]")) {
      const old = document.getElementById(part.dataset.part);
      if (!old) continue;
      const holder = document.createElement(old.tagName);
      holder.append(part.content.cloneNode(true));
      for (const each of old.querySelectorAll("details[open][id]")) {
        const again = holder.querySelector("#" + CSS.escape(each.id));
        if (again) again.open = true;
      }
      if (old.innerHTML === holder.innerHTML) continue;
      if (old.contains(active) && active.type === "range") {
        keepSlider(old, holder, active);
        continue;
      }
      old.replaceChildren(...holder.childNodes);
      const news = old.querySelector("[data-look]"); // what a button has done is shown, wherever the button is
      if (news) news.scrollIntoView({ block: "nearest" });
    }
    if (isAside) for (const line of document.querySelectorAll("#problem .problem")) line.dataset.aside = "";
    markFieldsSoon();
    if (id && document.activeElement !== active) {
      const again = document.getElementById(id);
      if (again) {
        again.focus({ preventScroll: true });
        if (caret && again.setSelectionRange) again.setSelectionRange(...caret);
      }
    }
  }

  /** A slider that is being moved must stay the same element; the others in its part are brought up to date. */
  function keepSlider(old, fresh, active) {
    for (const input of fresh.querySelectorAll("input[type=range]")) {
      const mine = old.querySelector("#" + CSS.escape(input.id));
      if (!mine) continue;
      mine.max = input.max;
      mine.disabled = input.disabled;
      if (mine !== active) mine.value = input.getAttribute("value");
      const shown = old.querySelector("#" + CSS.escape(input.id) + "-value");
      if (shown) shown.textContent = mine.value;
    }
    for (const note of fresh.querySelectorAll("[data-fresh]")) {
      const mine = old.querySelector("#" + CSS.escape(note.id));
      if (mine && mine.innerHTML !== note.innerHTML) mine.replaceChildren(...note.cloneNode(true).childNodes);
    }
  }

  // The messages about fields stand under them. While somebody types, they wait: half a number is no mistake.
  let waitingMark = 0;
  function markFieldsSoon() {
    clearTimeout(waitingMark);
    const lines = [...document.querySelectorAll("#problem .problem")];
    const old = lines.filter((line) => !("aside" in line.dataset)); // others are about files: results are as they were
    const fixes = old.map((line) => line.dataset.fix).filter(Boolean);
    const why = old.length ? "Not up to date: " + (fixes.length ? `correct ${fixes.join("; ")}.` : old[0].textContent) : "";
    for (const place of document.querySelectorAll("[data-outdated]")) place.textContent = why;
    const wrong = wrongFields();
    document.getElementById("problem")?.classList.toggle("hidden", wrong.size > 0 && lines.every((line) => document.getElementById(line.dataset.field || "")));
    for (const message of document.querySelectorAll("[data-message]"))
      if (!wrong.has(message.dataset.message)) unmarkField(message);
    markNoted();
    const isShown = document.querySelector("[data-message]");
    if (wrong.size) waitingMark = setTimeout(markFields, isShown ? 0 : 500);
  }

  /** The first message about each field, by its id. */
  function wrongFields() {
    const wrong = new Map();
    for (const line of document.querySelectorAll("#problem [data-field]"))
      if (document.getElementById(line.dataset.field) && !wrong.has(line.dataset.field)) wrong.set(line.dataset.field, line.textContent);
    return wrong;
  }

  function markFields() {
    for (const [id, text] of wrongFields()) markField(document.getElementById(id), text);
  }

  function unmarkField(message) {
    const field = document.getElementById(message.dataset.message);
    message.remove();
    if (field && "described" in field.dataset) unmark(field);
  }

  function unmark(field) {
    field.removeAttribute("aria-invalid");
    if (field.dataset.described) field.setAttribute("aria-describedby", field.dataset.described);
    else field.removeAttribute("aria-describedby");
    delete field.dataset.described;
    delete field.dataset.noted;
  }

  function mark(field, by) {
    field.dataset.described = field.getAttribute("aria-describedby") || "";
    field.setAttribute("aria-invalid", "true");
    field.setAttribute("aria-describedby", (field.dataset.described + " " + by).trim());
  }

  /** Lines that the server has put at a field, with data-marks=ID, mark it as long as they stand there. */
  function markNoted() {
    const lines = [...document.querySelectorAll("[data-marks]")];
    for (const field of document.querySelectorAll("[data-noted]"))
      if (!lines.some((line) => line.dataset.marks === field.id)) unmark(field);
    for (const line of lines) {
      const field = document.getElementById(line.dataset.marks);
      if (!field || "described" in field.dataset) continue;
      mark(field, line.id);
      field.dataset.noted = "";
    }
  }

  function markField(field, text) {
    const before = [...document.querySelectorAll("[data-message]")].find((each) => each.dataset.message === field.id);
    if (before && before.textContent === text && "described" in field.dataset) return;
    if (before) unmarkField(before);
    if ("described" in field.dataset) unmark(field);
    const row = field.closest("table.parties tr");
    const message = document.createElement("p");
    message.id = "field-problem-" + field.id;
    message.textContent = text;
    let holder = message;
    if (row) {
      holder = document.createElement("tr");
      const cell = document.createElement("td");
      cell.colSpan = row.cells.length;
      cell.append(message);
      holder.append(cell);
      row.after(holder);
    } else field.after(message);
    holder.dataset.message = field.id;
    holder.classList.add("field-problem");
    mark(field, message.id);
  }

  /** After a button: the field that it stumbled over. */
  function goToField() {
    const line = document.querySelector("#problem [data-field]");
    const field = line && document.getElementById(line.dataset.field);
    if (!field) {
      document.getElementById("problem")?.scrollIntoView({ block: "nearest" });
      return;
    }
    for (let around = field.closest("details"); around; around = around.parentElement.closest("details")) around.open = true;
    clearTimeout(waitingMark);
    markFields();
    field.focus();
  }

  async function send(form, action, isAside) {
    const before = waiting.get(form);
    // A question about a pointer never cancels a change; a change cancels everything before it.
    if (before && action === "point" && before.action !== "point") return;
    // Nor does a change cancel a button that was pressed: the server acts on it, so its answer must be shown first.
    if (before && !action && before.action && before.action !== "point") {
      before.again = true;
      return;
    }
    if (before) before.controller.abort();
    const controller = new AbortController();
    waiting.set(form, { controller, action });
    const body = new URLSearchParams(new FormData(form));
    if (action) body.set("action", action);
    if (action !== "point") form.classList.add("busy");
    try {
      const answer = await fetch(form.dataset.live, { method: "POST", body, signal: controller.signal });
      const text = await answer.text();
      if (answer.status === 401) {
        location.reload();
        return;
      }
      const isHtml = (answer.headers.get("content-type") || "").startsWith("text/html");
      if (isHtml) place(text, isAside && !answer.ok);
      else problem(text);
      if (answer.ok || !isAside) form.classList.toggle("stale", !answer.ok);
      if (!answer.ok && action && action !== "point") goToField();
      const to = document.getElementById(answer.headers.get("x-focus") || "");
      if (to) {
        to.focus();
        if (to.select) to.select();
      }
      form.dispatchEvent(new CustomEvent("tpmdp:placed", { bubbles: true }));
    } catch (error) {
      if (error.name === "AbortError") return;
      problem("The page does not answer. Is tpmdp page still running? Nothing is lost: load the page again.");
      form.classList.add("stale");
    } finally {
      const now = waiting.get(form);
      if (now && now.controller === controller) {
        waiting.delete(form);
        form.classList.remove("busy");
        if (now.again) send(form, "");
        document.documentElement.dataset.drawn = String(performance.now());
      }
    }
  }

  function problem(text) {
    const place = document.getElementById("problem");
    if (!place) return;
    const line = document.createElement("p");
    line.className = "problem";
    line.setAttribute("role", "alert");
    line.textContent = text;
    place.replaceChildren(line);
    markFieldsSoon();
  }

  /** A file, or another view: fetched, so that a problem is shown here and nothing that was typed is lost. */
  async function obtain(form, button) {
    const said = document.getElementById(button.dataset.says || "");
    if (said) said.textContent = "";
    form.classList.add("busy");
    try {
      const body = new URLSearchParams(new FormData(form));
      const answer = await fetch(button.formAction, { method: "POST", body });
      if (answer.status === 401) {
        location.reload();
        return;
      }
      const to = answer.headers.get("x-to");
      const name = /filename="([^"]*)"/.exec(answer.headers.get("content-disposition") || "");
      if (to) location.assign(to);
      else if (answer.ok && name) {
        document.getElementById("problem")?.replaceChildren();
        markFieldsSoon();
        saveFile(await answer.blob(), name[1]);
        if (said) said.textContent = `Saved as ${name[1]}: your browser put it where it puts downloads.`;
      } else {
        const text = await answer.text();
        if ((answer.headers.get("content-type") || "").startsWith("text/html")) place(text, true);
        else problem(text);
        goToField();
      }
    } catch (error) {
      problem("The page does not answer. Is tpmdp page still running? Nothing is lost: load the page again.");
    } finally {
      form.classList.remove("busy");
    }
  }

  function saveFile(data, name) {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(data);
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 60000);
  }

  let frame = 0;
  document.addEventListener("input", (event) => {
    const form = event.target.form;
    if (event.target.type === "file") return;
    if (event.target.dataset.clears && !event.target.value.trim()) {
      const other = document.getElementById(event.target.dataset.clears);
      if (other) other.value = "";
    }
    if (event.target.type === "range") {
      const shown = document.getElementById(event.target.id + "-value");
      if (shown) shown.textContent = event.target.value;
    }
    if (!form || !form.dataset.live || form.dataset.when === "asked") return;
    cancelAnimationFrame(frame);
    frame = requestAnimationFrame(() => send(form, ""));
  });

  document.addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (!button) return;
    if (button.dataset.action && button.form) {
      event.preventDefault();
      cancelAnimationFrame(frame); // what was typed is sent with the button
      send(button.form, button.dataset.action, "aside" in button.dataset);
    } else if (button.dataset.copy) {
      const from = document.getElementById(button.dataset.copy);
      if (from && navigator.clipboard) navigator.clipboard.writeText(from.textContent).then(() => { button.textContent = "Copied"; });
    }
  });

  // Enter in a field brings the results up to date. It must not press the form's first button, as browsers do.
  document.addEventListener("click", (event) => {
    const button = event.target.closest("button[type=submit]");
    if (!button || !button.form || !button.form.dataset.live) return;
    if (event.detail === 0 && document.activeElement !== button) {
      event.preventDefault();
      send(button.form, button.form.dataset.enter || "");
    }
  });
  document.addEventListener("submit", (event) => {
    const form = event.target;
    if (!form.dataset.live) return;
    if (event.submitter && !event.submitter.hasAttribute("formaction")) return;
    event.preventDefault();
    if (event.submitter) obtain(form, event.submitter);
    else send(form, form.dataset.enter || "");
  });

  // The party under the pointer, or the one whose button has the focus.
  let pointed = "";
  function point(event) {
    const row = event.target.closest && event.target.closest("[data-point]");
    const form = row && row.closest("form");
    if (!form || !form.dataset.live || row.dataset.point === pointed) return;
    const field = form.querySelector("input[name=pointed]");
    if (!field) return;
    pointed = row.dataset.point;
    field.value = pointed;
    send(form, "point");
  }
  // New contents under a pointer that rests are no choice: only a pointer that has moved is one.
  let rests = "";
  document.addEventListener("pointerover", (event) => {
    const at = `${event.clientX} ${event.clientY}`;
    if (at !== rests) point(event);
    rests = at;
  });
  document.addEventListener("pointermove", (event) => { rests = `${event.clientX} ${event.clientY}`; });
  document.addEventListener("click", point); // a phone has no pointer that hovers
  document.addEventListener("focusin", point);

  // Files: sent whole, as they are, with their name in a header; the answer is shown like that of a form.
  document.addEventListener("change", (event) => {
    const input = event.target;
    if (input.type === "file" && input.dataset.upload) upload(input, input.files[0]);
  });
  document.addEventListener("dragover", (event) => { if (event.target.closest("[data-drop]")) event.preventDefault(); });
  document.addEventListener("drop", (event) => {
    const area = event.target.closest("[data-drop]");
    if (!area) return;
    event.preventDefault();
    const input = document.getElementById(area.dataset.drop);
    if (input && event.dataTransfer.files.length) upload(input, event.dataTransfer.files[0]);
  });

  async function upload(input, file) {
    if (!file) return;
    const most = Number(input.dataset.most || 0);
    if (most && file.size > most) {
      problem(`${file.name} has ${file.size.toLocaleString("en")} bytes; at most ${most.toLocaleString("en")} can be sent.`);
      input.value = "";
      return;
    }
    const headers = { "content-type": "application/octet-stream", "x-file-name": encodeURIComponent(file.name) };
    const form = input.form;
    if (form) form.classList.add("busy");
    try {
      const answer = await fetch(input.dataset.upload, { method: "POST", body: file, headers });
      const text = await answer.text();
      if ((answer.headers.get("content-type") || "").startsWith("text/html")) place(text);
      else problem(text);
      if (answer.ok && form && form.dataset.live && input.dataset.then) send(form, input.dataset.then);
      if (answer.ok && form) form.classList.remove("stale");
    } catch (error) {
      problem("The file could not be sent. Is tpmdp page still running?");
    } finally {
      if (form) form.classList.remove("busy");
      input.value = "";
    }
  }

  // Parts that change by themselves: <div data-poll="/join/run" data-every="1000" id="...">.
  const answerMs = 20000; // a program that takes longer is as good as gone
  async function poll(part) {
    try {
      const answer = await fetch(part.dataset.poll, { headers: { accept: "text/html" }, signal: AbortSignal.timeout(answerMs) });
      if (answer.status === 401) { // the program was started again, and has another token
        location.reload();
        return;
      }
      lost(false);
      if (answer.ok) place(await answer.text());
      part.classList.remove("stale");
    } catch (error) {
      lost(true);
      part.classList.add("stale");
    }
    const again = document.getElementById(part.id);
    if (again && again.dataset.poll) setTimeout(() => poll(again), Number(again.dataset.every || 1000));
  }

  /** Nothing that the page shows may look alive when its program does not answer. */
  function lost(isLost) {
    const banner = document.getElementById("lost");
    if (!banner || banner.hidden !== isLost) return;
    banner.hidden = !isLost;
    document.documentElement.classList.toggle("lost", isLost);
    if (isLost) for (const clock of document.querySelectorAll("[data-clock]")) clock.textContent = clock.dataset.clock;
  }

  const polling = new WeakSet();
  function startPolls() {
    for (const part of document.querySelectorAll("[data-poll]")) {
      if (polling.has(part)) continue;
      polling.add(part);
      setTimeout(() => poll(part), Number(part.dataset.every || 1000));
    }
  }
  document.addEventListener("tpmdp:placed", startPolls);
  startPolls();
  markFieldsSoon();
})();
