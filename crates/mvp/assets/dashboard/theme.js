// The theme, before the first paint. It runs in the head, so it is no module.
"use strict";
(() => {
  let theme = null;
  try {
    theme = localStorage.getItem("mvp-theme");
  } catch {
    // Storage may be forbidden. Then the theme is that of the system.
  }
  if (theme === "light" || theme === "dark") {
    document.documentElement.dataset.theme = theme;
  }
})();
