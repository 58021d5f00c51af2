// Keeps the dashboard fresh without a reload: fetches its parts, puts in those that changed, and says when it can't.
"use strict";

(() => {
  const board = document.getElementById("fleet-dashboard");
  const seconds = Number(board.dataset.seconds);
  const stale = document.getElementById("fleet-stale");
  const freshAt = document.getElementById("fleet-fresh-at");
  const known = new Map();
  let seenAt = document.querySelector("[data-part=time]").dataset.at;
  let timer = 0;
  let busy = false;

  for (const part of document.querySelectorAll("#fleet-parts [data-part]")) {
    known.set(part.dataset.part, part.outerHTML);
  }

  // An answer that arrived after a redirect is the page to sign in on.
  async function get(url) {
    const response = await fetch(url, { credentials: "same-origin", cache: "no-store", signal: AbortSignal.timeout(8000) });
    if (response.redirected || response.status === 403) {
      throw new Error("signed out");
    }
    if (!response.ok) {
      throw new Error(`status ${response.status}`);
    }
    return response.text();
  }

  // Whoever reads a table or stands on a button keeps it: what is open, focused and scrolled stays so.
  function swap(part, html) {
    const open = [...part.querySelectorAll("details[open]")].map((details) => details.id);
    const scrolled = new Map([...part.querySelectorAll("details[open] .fleet-scroll")].map((box) => [box.closest("details").id, box.scrollTop]));
    const focused = part.contains(document.activeElement) ? pathTo(document.activeElement, part) : null;
    const holder = document.createElement("template");
    holder.innerHTML = html;
    const fresh = holder.content.firstElementChild;
    part.replaceWith(fresh);
    for (const id of open) {
      const details = document.getElementById(id);
      if (details) {
        details.open = true;
        details.querySelector(".fleet-scroll").scrollTop = scrolled.get(id);
      }
    }
    if (focused) {
      find(focused, fresh)?.focus({ preventScroll: true });
    }
  }

  // By what it leads to or does, as rows may have come or gone above it.
  function pathTo(element, part) {
    const name = (each) => [each.tagName, each.getAttribute("href"), each.getAttribute("formaction"), each.value, each.parentElement.id].join(" ");
    const all = [...part.querySelectorAll("a, button, summary, [tabindex]")];
    const alike = all.filter((each) => name(each) === name(element));
    return { name, wanted: name(element), place: alike.indexOf(element) };
  }

  function find({ name, wanted, place }, part) {
    return [...part.querySelectorAll("a, button, summary, [tabindex]")].filter((each) => name(each) === wanted)[place];
  }

  function show(html) {
    const holder = document.createElement("template");
    holder.innerHTML = html;
    for (const fresh of holder.content.querySelectorAll("[data-part]")) {
      const name = fresh.dataset.part;
      const text = fresh.outerHTML;
      const part = document.querySelector(`#fleet-parts [data-part=${name}]`);
      // Not the figure under somebody's pointer: its numbers would jump.
      if (part && known.get(name) !== text && !(name === "charts" && part.matches(":hover"))) {
        swap(part, text);
        known.set(name, text);
      }
    }
    seenAt = holder.content.querySelector("[data-part=time]").dataset.at;
    freshAt.textContent = `As of ${seenAt} UTC`;
  }

  function say(text, link) {
    if (stale.textContent === text) {
      return;
    }
    stale.textContent = text;
    stale.hidden = !text;
    board.classList.toggle("fleet-is-stale", Boolean(text));
    if (link) {
      stale.replaceChildren(Object.assign(document.createElement("a"), { href: link, textContent: text }));
    }
  }

  async function refresh({ first = false } = {}) {
    if (busy || document.hidden) {
      return;
    }
    busy = true;
    window.clearTimeout(timer);
    try {
      if (!first) {
        show(await get(board.dataset.parts));
      }
      const queues = await get(board.dataset.queues);
      const place = document.getElementById("fleet-queues");
      if (known.get("queues") !== queues) {
        place.innerHTML = queues;
        known.set("queues", queues);
      }
      say("");
    } catch (error) {
      if (error.message === "signed out") {
        say(`You are signed out: sign in again. What you see is of ${seenAt} UTC.`, window.location.href);
      } else {
        say(`The server can't be reached. What you see is of ${seenAt} UTC.`);
      }
    }
    busy = false;
    timer = window.setTimeout(() => refresh(), seconds * 1000);
  }

  // What the lines were under the pointer.
  function point(event) {
    const area = event.target.closest?.(".fleet-area");
    for (const cursor of document.querySelectorAll(".fleet-cursor:not([hidden])")) {
      if (!area?.contains(cursor)) {
        read(cursor.closest("figure"), null);
      }
    }
    if (area) {
      const box = area.getBoundingClientRect();
      read(area.closest("figure"), Math.min(Math.max((event.clientX - box.left) / box.width, 0), 0.9999));
    }
  }

  function read(figure, share) {
    const cursor = figure.querySelector(".fleet-cursor");
    const { times, series } = JSON.parse(figure.dataset.values);
    const step = share === null ? null : Math.floor(share * times.length);
    cursor.hidden = step === null;
    cursor.style.left = `${((step + 0.5) * 100) / times.length}%`;
    figure.querySelector("[data-when]").textContent = step === null ? "latest" : `${times[step]} UTC`;
    for (const place of figure.querySelectorAll("[data-series]")) {
      const values = series[place.dataset.series];
      place.textContent = step === null ? (values.findLast((value) => value !== "not known") ?? "not known") : values[step];
    }
  }

  document.addEventListener("visibilitychange", () => refresh());
  document.addEventListener("pointermove", point);
  document.addEventListener("pointerdown", point);
  refresh({ first: true });
})();
