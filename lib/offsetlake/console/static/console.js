"use strict"
// The search field from anywhere, times in the zone of the browser on hover, buttons that copy commands, and sliders.
document.addEventListener("keydown", event => {
  const isTyping = event.target.closest("input, textarea, select")
  if (event.key !== "/" || isTyping || event.ctrlKey || event.metaKey || event.altKey) return
  event.preventDefault()
  document.getElementById("search").select()
})
for (const time of document.querySelectorAll("time")) {
  const moment = new Date(time.dateTime)
  if (!isNaN(moment)) time.title = moment.toLocaleString(undefined, {dateStyle: "full", timeStyle: "long"})
}
for (const button of document.querySelectorAll("[data-copy]")) {
  button.hidden = !navigator.clipboard
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(button.dataset.copy)
    button.textContent = "Copied"
  })
}
for (const slider of document.querySelectorAll("input[data-sets]")) {
  const field = document.getElementById(slider.dataset.sets), chosen = document.getElementById("chosen")
  const step = Number(slider.dataset.step)
  let isDragged = false
  const choose = () => {
    field.value = new Date(slider.valueAsNumber).toISOString()
    chosen.textContent = field.value
    slider.setAttribute("aria-valuetext", field.value)
  }
  slider.hidden = false
  slider.setAttribute("aria-valuetext", new Date(slider.valueAsNumber).toISOString())
  slider.addEventListener("input", choose)
  slider.addEventListener("pointerdown", () => { isDragged = true })
  slider.addEventListener("change", () => { if (isDragged) slider.form.requestSubmit() })
  slider.addEventListener("keydown", event => {
    isDragged = false
    const steps = {ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1, PageDown: -10, PageUp: 10}[event.key]
    if (event.key === "Enter") slider.form.requestSubmit()
    else if (steps) {
      slider.value = slider.valueAsNumber + steps * (event.shiftKey ? Math.max(1, Math.round(step / 16)) : step)
      choose()
    } else return
    event.preventDefault()
  })
}
