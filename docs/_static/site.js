// Code and tables that are wider than their column scroll; the keyboard must reach them, too.
const reachable = () => document.querySelectorAll("pre, .table-wrapper, .math-wrapper").forEach((element) => {
    if (element.scrollWidth > element.clientWidth) element.tabIndex = 0;
    else element.removeAttribute("tabindex");
});
addEventListener("load", reachable);
addEventListener("resize", reachable);
