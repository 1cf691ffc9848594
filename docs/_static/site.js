// Code and tables that are wider than their column scroll; the keyboard must reach them, too.
const reachable = () => document.querySelectorAll("pre, .table-wrapper, .math-wrapper").forEach((element) => {
    if (element.scrollWidth > element.clientWidth) element.tabIndex = 0;
    else element.removeAttribute("tabindex");
});
addEventListener("load", reachable);
addEventListener("resize", reachable);

// A click on a heading sorts a long table by that column, numbers by value; a second click turns the order round.
const value = (row, column) => row.cells[column].textContent.trim();
const number = (text) => (/^-?[\d,.]+/.test(text) ? parseFloat(text.replace(/,/g, "")) : NaN);
const compare = (one, other) => {
    const [a, b] = [number(one), number(other)];
    if (isNaN(a) !== isNaN(b)) return isNaN(a) ? 1 : -1;
    return isNaN(a) ? one.localeCompare(other) : a - b;
};
const sort = (heading) => {
    const body = heading.closest("table").tBodies[0];
    const turned = heading.getAttribute("aria-sort") === "ascending";
    for (const other of heading.parentElement.cells) other.removeAttribute("aria-sort");
    heading.setAttribute("aria-sort", turned ? "descending" : "ascending");
    const rows = [...body.rows].sort((a, b) => compare(value(a, heading.cellIndex), value(b, heading.cellIndex)));
    body.append(...(turned ? rows.reverse() : rows));
};
addEventListener("DOMContentLoaded", () => {
    for (const table of document.querySelectorAll("table")) {
        if (!table.tHead || !table.tBodies.length || table.tBodies[0].rows.length < 9) continue;
        for (const heading of table.tHead.rows[0].cells) {
            const button = document.createElement("button");
            button.className = "sort";
            button.append(...heading.childNodes);
            button.addEventListener("click", () => sort(heading));
            heading.append(button);
        }
    }
});
