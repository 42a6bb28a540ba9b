// What every attack in TypeScript stands on. The lines before this one set the places.
async function attempt(number: number, name: string, attack: () => unknown) {
  let verdict = "done";
  let shown: unknown;
  try {
    shown = await attack();
  } catch (error) {
    verdict = "refused";
    shown = error;
  }
  console.log(`${number}|${name}|${verdict}|` + JSON.stringify(String(shown)).slice(0, 300));
}

