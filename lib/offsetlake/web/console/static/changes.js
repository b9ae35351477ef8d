"use strict"
// Shows the step of a change that is under way, and the page that follows when it has ended.
const step = document.getElementById("step")
const poll = async () => {
  const response = await fetch(location.href, {headers: {Accept: "text/html"}})
  const page = new DOMParser().parseFromString(await response.text(), "text/html")
  const next = page.getElementById("step")
  if (!next) return location.reload()
  if (step.textContent !== next.textContent) step.textContent = next.textContent
  setTimeout(poll, 500)
}
setTimeout(poll, 500)
