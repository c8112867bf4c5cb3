// What the style sheets of all our pages for people share.
#pragma once

namespace lockstep {

// Sizes, tables, plots, and --edge, the colour of fine lines. On a phone the page keeps its width:
// words break, and a table that needs more scrolls in itself.
inline constexpr const char* kPageStyle = R"(
:root { color-scheme: light dark; --edge: #8884; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem;
  overflow-wrap: break-word; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; padding: .25rem .6rem; border-bottom: 1px solid var(--edge);
  vertical-align: top; }
pre { white-space: pre-wrap; overflow-wrap: anywhere; margin: 0; }
code { font-size: .85em; overflow-wrap: anywhere; }
@media (max-width: 48rem) {
  table { display: block; overflow-x: auto; }
  td:nth-child(n + 3):last-child { min-width: 14rem; }
}
svg { width: 100%; height: auto; }
.grid { stroke: var(--edge); } .tick { font-size: 10px; fill: currentColor; }
.line, .limit { fill: none; stroke-width: 1.5; }
.limit { stroke: #cf222e; stroke-dasharray: 6 4; }
.fork { background: #cf222e33; }
)";

}  // namespace lockstep
