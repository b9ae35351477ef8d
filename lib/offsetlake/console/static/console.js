"use strict"
// The search field from anywhere, times in the zone of the browser on hover, and buttons that copy commands.
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
