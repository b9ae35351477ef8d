"use strict"
// Loads what needs attention into the landing page, again until it is complete.
const place = document.getElementById("attention")
const load = async () => {
  const response = await fetch(place.dataset.load, {headers: {Accept: "text/html"}})
  const page = new DOMParser().parseFromString(await response.text(), "text/html")
  const problems = page.getElementById("problems") ?? page.querySelector("[role=alert]")
  if (problems) place.replaceChildren(document.adoptNode(problems))
  if (response.headers.has("Retry-After")) setTimeout(load, 2000)
}
load()
