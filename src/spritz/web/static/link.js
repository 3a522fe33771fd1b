// A login link that a person has opened, from a terminal for example, needs no further press.
"use strict";
document.querySelector("#by-link[data-now]")?.submit();
