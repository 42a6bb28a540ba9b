// The little that the page does by itself: the theme, keys, and the search field. Everything else works without it.
(() => {
  "use strict";
  const root = document.documentElement;
  const storageKey = "mooring-theme";
  const prefersDark = matchMedia("(prefers-color-scheme: dark)");

  const isDark = () => (root.dataset.theme ?? (prefersDark.matches ? "dark" : "light")) === "dark";

  function stored() {
    try {
      return localStorage.getItem(storageKey);
    } catch {
      return null;
    }
  }

  function setTheme(theme) {
    root.dataset.theme = theme;
    try {
      localStorage.setItem(storageKey, theme);
    } catch {
      // Without storage the choice is for this page alone.
    }
    showTheme();
  }

  function showTheme() {
    document.getElementById("theme")?.setAttribute("aria-pressed", String(isDark()));
  }

  const theme = stored();
  if (theme === "dark" || theme === "light") root.dataset.theme = theme;

  const isTyping = (target) => target.closest("input, textarea, select, [contenteditable]") !== null;

  function openShortcuts() {
    const dialog = document.getElementById("shortcuts");
    if (dialog && !dialog.open) dialog.showModal();
  }

  // `g` and then the key of a page.
  let isGoing = false;
  let goingUntil;

  function onKey(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target)) return;
    if (isGoing) {
      isGoing = false;
      clearTimeout(goingUntil);
      const link = document.querySelector(`#navigation a[data-key="${CSS.escape(event.key)}"]`);
      if (link) {
        event.preventDefault();
        link.click();
      }
      return;
    }
    switch (event.key) {
      case "?":
        openShortcuts();
        break;
      case "t":
        setTheme(isDark() ? "light" : "dark");
        break;
      case "g":
        isGoing = true;
        goingUntil = setTimeout(() => (isGoing = false), 1500);
        break;
      case "/": {
        const search = document.querySelector("[data-search]");
        if (!search) return;
        search.focus();
        search.select();
        break;
      }
      default:
        return;
    }
    event.preventDefault();
  }

  document.addEventListener("keydown", onKey);
  document.addEventListener("DOMContentLoaded", () => {
    const button = document.getElementById("theme");
    if (button) {
      button.hidden = false;
      button.addEventListener("click", () => setTheme(isDark() ? "light" : "dark"));
    }
    for (const opener of document.querySelectorAll('[data-opens="shortcuts"]')) {
      opener.hidden = false;
      opener.addEventListener("click", openShortcuts);
    }
    // An act in steps goes on until somebody stops it.
    const nextStep = document.querySelector("[data-continues] form");
    if (nextStep) {
      const sending = setTimeout(() => nextStep.requestSubmit(), 400);
      document.querySelector("[data-stops]")?.addEventListener("click", () => clearTimeout(sending));
    }
    showTheme();
    prefersDark.addEventListener("change", showTheme);
  });
})();
