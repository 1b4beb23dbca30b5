// The page's only script: it sends forms and shows what comes back. Every rule and every number is made by the server.
"use strict";

(() => {
  const waiting = new Map(); // form -> {controller, action}

  /** Put the new contents of elements in place, by their id; keep the focus where it was. */
  function place(html) {
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
    }
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
  }

  async function send(form, action, extra) {
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
    for (const [key, value] of Object.entries(extra || {})) body.set(key, value);
    if (action !== "point") form.classList.add("busy");
    try {
      const answer = await fetch(form.dataset.live, { method: "POST", body, signal: controller.signal });
      const text = await answer.text();
      if (answer.status === 401) {
        location.reload();
        return;
      }
      const isHtml = (answer.headers.get("content-type") || "").startsWith("text/html");
      if (isHtml) place(text);
      else problem(text);
      form.classList.toggle("stale", !answer.ok);
      const to = answer.headers.get("x-focus");
      if (to && document.getElementById(to)) document.getElementById(to).focus();
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
  }

  let frame = 0;
  document.addEventListener("input", (event) => {
    const form = event.target.form;
    if (event.target.type === "file") return;
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
      send(button.form, button.dataset.action);
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
    if (!event.target.dataset.live || event.submitter) return;
    event.preventDefault();
    send(event.target, event.target.dataset.enter || "");
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
  document.addEventListener("pointerover", point);
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
    } catch (error) {
      problem("The file could not be sent. Is tpmdp page still running?");
    } finally {
      if (form) form.classList.remove("busy");
      input.value = "";
    }
  }

  // Parts that change by themselves: <div data-poll="/join/run" data-every="1000" id="...">.
  async function poll(part) {
    try {
      const answer = await fetch(part.dataset.poll, { headers: { accept: "text/html" } });
      if (answer.ok) place(await answer.text());
      part.classList.remove("stale");
    } catch (error) {
      part.classList.add("stale");
    }
    const again = document.getElementById(part.id);
    if (again && again.dataset.poll) setTimeout(() => poll(again), Number(again.dataset.every || 1000));
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
})();
