"use strict"
// Selects all rows of the page, or those between two with Shift, and shows how many are selected.
const boxes = [...document.querySelectorAll("input[name=row]")]
const all = document.getElementById("all"), selected = document.getElementById("selected")
let last = null
const count = () => {
  const number = boxes.filter(box => box.checked).length
  selected.textContent = `${number} of ${boxes.length} selected`
  all.checked = number === boxes.length
  all.indeterminate = number > 0 && number < boxes.length
}
all.hidden = false
all.addEventListener("change", () => { for (const box of boxes) box.checked = all.checked; count() })
for (const [index, box] of boxes.entries()) {
  box.addEventListener("click", event => {
    if (event.shiftKey && last !== null)
      for (const other of boxes.slice(Math.min(index, last), Math.max(index, last) + 1)) other.checked = box.checked
    last = index
    count()
  })
  box.addEventListener("keydown", event => { if (event.key === "Enter") event.preventDefault() })  // submits nothing
}
count()
