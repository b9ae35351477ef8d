"use strict"
// Completes names while a statement is typed, runs it with Ctrl+Enter, and cancels it: leaving the page stops the query.
const field = document.getElementById("statement"), list = document.getElementById("names")
const known = [...new Set([...document.getElementById("known").children].map(option => option.value))].sort()
let chosen = 0
const word = () => field.value.slice(0, field.selectionStart).match(/[A-Za-z_][A-Za-z0-9_]*$/)?.[0] ?? ""
const close = () => {
  list.hidden = true
  field.setAttribute("aria-expanded", "false")
  field.removeAttribute("aria-activedescendant")
}
const choose = index => {
  chosen = (index + list.children.length) % list.children.length
  for (const [number, option] of [...list.children].entries()) option.setAttribute("aria-selected", String(number === chosen))
  field.setAttribute("aria-activedescendant", list.children[chosen].id)
}
const propose = () => {
  const typed = word().toLowerCase()
  const names = typed.length < 2 ? [] : known.filter(name => name.startsWith(typed) && name !== typed).slice(0, 8)
  list.replaceChildren(...names.map((name, number) => {
    const option = document.createElement("li")
    Object.assign(option, {id: `name-${number}`, textContent: name})
    option.setAttribute("role", "option")
    option.addEventListener("mousedown", event => { event.preventDefault(); chosen = number; complete() })
    return option
  }))
  if (!names.length) return close()
  list.hidden = false
  field.setAttribute("aria-expanded", "true")
  choose(0)
}
const complete = () => {
  const start = field.selectionStart - word().length
  field.setRangeText(list.children[chosen].textContent, start, field.selectionStart, "end")
  close()
}
field.addEventListener("input", propose)
field.addEventListener("blur", close)
field.addEventListener("keydown", event => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) return field.form.requestSubmit()
  if (list.hidden) return
  const actions = {ArrowDown: () => choose(chosen + 1), ArrowUp: () => choose(chosen - 1), Tab: complete, Escape: close}
  if (event.key in actions) {
    event.preventDefault()
    actions[event.key]()
  }
})
field.form.addEventListener("submit", () => {
  document.getElementById("running").textContent = "The query is running."
  document.getElementById("cancel").hidden = false
})
document.getElementById("cancel").addEventListener("click", event => {
  event.preventDefault()
  window.stop() // closes the connection, which stops the query
  document.getElementById("running").textContent = "The query was cancelled."
  document.getElementById("cancel").hidden = true
})
