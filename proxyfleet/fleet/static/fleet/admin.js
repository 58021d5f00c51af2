// What a screen reader needs to be told, where the theme's and Django's own pages say nothing.
"use strict";

const SCROLLED = [["#nav-sidebar-apps", "Sections"], ["#changelist-filter [data-simplebar]", "Filters"], ["form [data-simplebar]", "Rows"]];

document.addEventListener("DOMContentLoaded", () => {
  // Read by the scroll bars' script, which comes after this one.
  for (const [selector, name] of SCROLLED) {
    for (const element of document.querySelectorAll(selector)) {
      element.dataset.simplebarAriaLabel ??= name;
    }
  }
  document.querySelector("#searchbar-submit")?.setAttribute("aria-label", "Search");
});

// The two lists to choose from are made when the page has been loaded.
window.addEventListener("load", () => setTimeout(() => {
  for (const element of document.querySelectorAll("span.help-tooltip[aria-label]")) {
    element.setAttribute("role", "img");
  }
}));
