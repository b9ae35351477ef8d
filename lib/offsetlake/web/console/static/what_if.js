"use strict"
// Shows the effect of a policy while its slider is moved or its text is edited.
const form = document.getElementById("policy-form"), policy = document.getElementById("policy")
const days = document.getElementById("days"), chosenDays = document.getElementById("chosen-days")
const DEFAULT = /^(\s*default\s*=\s*).*$/m
let waiting, running
const show = async () => {
  running?.abort()
  running = new AbortController()
  const address = `${form.getAttribute("action")}?${new URLSearchParams(new FormData(form))}`
  try {
    const response = await fetch(address, {signal: running.signal})
    const page = new DOMParser().parseFromString(await response.text(), "text/html")
    for (const id of ["effect", "command"]) document.getElementById(id)?.replaceWith(page.getElementById(id))
    history.replaceState(null, "", address)
    if (document.querySelector("#effect [data-again]")) setTimeout(show, 1000)
  } catch (error) {
    if (error.name !== "AbortError") document.getElementById("effect").textContent = "The console does not respond."
  }
}
const soon = () => {
  clearTimeout(waiting)
  waiting = setTimeout(show, 150)
}
days.hidden = false
days.addEventListener("input", () => {
  chosenDays.textContent = days.value
  const line = `default = "${days.value}d"`
  if (DEFAULT.test(policy.value)) policy.value = policy.value.replace(DEFAULT, `$1"${days.value}d"`)
  else policy.value = policy.value.replace(/^\s*\[retention\]\s*$/m, `[retention]\n${line}`)
  soon()
})
policy.addEventListener("input", soon)
form.elements.q.addEventListener("input", soon)
