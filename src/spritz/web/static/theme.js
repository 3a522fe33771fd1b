// Before anything is drawn: the colours that the viewer chose last.
"use strict";
try {
  const theme = localStorage.getItem("theme");
  if (theme) document.documentElement.dataset.theme = theme;
} catch { /* storage is switched off */ }
