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
  // What acts on a click must be in reach of the keyboard as well.
  for (const element of document.querySelectorAll("a:not([href]), #main header span.material-symbols-outlined")) {
    if (element.hasAttribute("x-on:click")) {
      element.setAttribute("role", "button");
      element.tabIndex = 0;
      if (element.localName === "span") {
        element.setAttribute("aria-label", "Sidebar");
      }
      element.addEventListener("keydown", (event) => {
        if (event.key === "Enter" || event.key === " ") {
          event.preventDefault();
          element.click();
        }
      });
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
