//! From a configured command to the arguments of one run.
//!
//! Placeholders are `{prompt}`, `{session}`, `{workFolder}` and, as an argument of its own, `{resume}`. Any other brace is
//! text. Invariant: what a value holds is never looked at again, so a prompt that reads `{session}` stays just that, and
//! the number of arguments does not depend on any value.

use std::fmt;

/// What a run puts in the place of a word in braces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Placeholder {
    Prompt,
    Session,
    WorkFolder,
    Resume,
}

impl Placeholder {
    const ALL: [Self; 4] = [Self::Prompt, Self::Session, Self::WorkFolder, Self::Resume];

    const fn written(self) -> &'static str {
        match self {
            Self::Prompt => "{prompt}",
            Self::Session => "{session}",
            Self::WorkFolder => "{workFolder}",
            Self::Resume => "{resume}",
        }
    }
}

/// A part of one argument.
#[derive(Clone, PartialEq, Eq)]
enum Piece {
    Text(String),
    Place(Placeholder),
}

/// One argument.
#[derive(Clone, PartialEq, Eq)]
struct Pattern(Vec<Piece>);

/// One element of a command.
#[derive(Clone, PartialEq, Eq)]
enum Element {
    Argument(Pattern),
    /// Where the arguments that resume stand.
    Resume,
}

/// A command with places for what differs from run to run; checked. `Debug` shows how many arguments there are, not what
/// they are: they may be secrets. The default is the stand-in for one that was refused, and has no program.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct CommandTemplate {
    program: String,
    /// One of them is [`Element::Resume`].
    elements: Vec<Element>,
    resume: Vec<Pattern>,
}

/// Why a command is no template. The text repeats nothing of the command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    /// There is no first element, or an empty one.
    #[error("there is no program")]
    NoProgram,
    /// Which program runs would depend on a caller.
    #[error("the program may not hold {0}")]
    PlaceholderInProgram(&'static str),
    /// The program would never see what is asked of it.
    #[error("no argument of the command holds {{prompt}}")]
    NoPrompt,
    /// A fresh run has no session.
    #[error("the command holds {{session}}, which only the arguments in `resume` may")]
    SessionInCommand,
    /// Several arguments cannot stand within one.
    #[error("{{resume}} has to be an argument of its own")]
    ResumeWithinArgument,
    /// They would be given twice.
    #[error("{{resume}} is a duplicate")]
    ResumeTwice,
    /// Nothing would say what to resume.
    #[error("no argument that resumes holds {{session}}")]
    NoSession,
    /// They cannot hold themselves.
    #[error("the arguments that resume may not hold {{resume}}")]
    ResumeInResume,
}

impl TemplateError {
    /// Whether the arguments that resume are wrong, and not the command.
    #[must_use]
    pub const fn is_about_resume(self) -> bool {
        matches!(self, Self::NoSession | Self::ResumeInResume)
    }
}

impl CommandTemplate {
    /// Reads a command, its program first, and the arguments that resume a session; without these, every run is fresh.
    /// They replace `{resume}` in the command, or follow its last argument.
    ///
    /// # Errors
    /// What is wrong with either of them.
    pub fn parse(command: &[String], resume: &[String]) -> Result<Self, TemplateError> {
        let (program, arguments) = command.split_first().ok_or(TemplateError::NoProgram)?;
        if program.is_empty() {
            return Err(TemplateError::NoProgram);
        }
        let in_program = Placeholder::ALL
            .into_iter()
            .find(|placeholder| program.contains(placeholder.written()));
        if let Some(placeholder) = in_program {
            return Err(TemplateError::PlaceholderInProgram(placeholder.written()));
        }
        Ok(Self {
            program: program.clone(),
            elements: parse_elements(arguments)?,
            resume: parse_resume(resume)?,
        })
    }

    /// The program and the arguments of a run that resumes a session, or of a fresh one. Where there is nothing that
    /// resumes, every run is fresh.
    #[must_use]
    pub fn arguments(&self, prompt: &str, session: Option<&str>, work_folder: &str) -> Vec<String> {
        let values = Values {
            prompt,
            session: session.unwrap_or_default(),
            work_folder,
        };
        let mut arguments = vec![self.program.clone()];
        for element in &self.elements {
            match element {
                Element::Argument(pattern) => arguments.push(pattern.with(&values)),
                Element::Resume if session.is_some() => {
                    arguments.extend(self.resume.iter().map(|pattern| pattern.with(&values)));
                }
                Element::Resume => {}
            }
        }
        arguments
    }

    /// Whether a run can resume a session.
    #[must_use]
    pub fn can_resume(&self) -> bool {
        !self.resume.is_empty()
    }

    /// A name that is looked up in the child's PATH, or an absolute path.
    #[must_use]
    pub fn program(&self) -> &str {
        &self.program
    }
}

impl fmt::Debug for CommandTemplate {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (program, count) = (&self.program, self.elements.len());
        write!(formatter, "{program:?} with {count} elements")
    }
}

fn parse_elements(arguments: &[String]) -> Result<Vec<Element>, TemplateError> {
    let mut elements = Vec::with_capacity(arguments.len().saturating_add(1));
    let mut has_prompt = false;
    for argument in arguments {
        let pattern = Pattern::parse(argument);
        has_prompt |= pattern.holds(Placeholder::Prompt);
        if pattern.holds(Placeholder::Session) {
            return Err(TemplateError::SessionInCommand);
        }
        if pattern.0 == [Piece::Place(Placeholder::Resume)] {
            if elements.contains(&Element::Resume) {
                return Err(TemplateError::ResumeTwice);
            }
            elements.push(Element::Resume);
        } else if pattern.holds(Placeholder::Resume) {
            return Err(TemplateError::ResumeWithinArgument);
        } else {
            elements.push(Element::Argument(pattern));
        }
    }
    if !has_prompt {
        return Err(TemplateError::NoPrompt);
    }
    if !elements.contains(&Element::Resume) {
        elements.push(Element::Resume);
    }
    Ok(elements)
}

fn parse_resume(arguments: &[String]) -> Result<Vec<Pattern>, TemplateError> {
    let patterns: Vec<Pattern> = arguments.iter().map(|text| Pattern::parse(text)).collect();
    let one_holds = |placeholder| patterns.iter().any(|pattern| pattern.holds(placeholder));
    if one_holds(Placeholder::Resume) {
        return Err(TemplateError::ResumeInResume);
    }
    if !patterns.is_empty() && !one_holds(Placeholder::Session) {
        return Err(TemplateError::NoSession);
    }
    Ok(patterns)
}

/// What one run puts in.
struct Values<'a> {
    prompt: &'a str,
    session: &'a str,
    work_folder: &'a str,
}

impl Pattern {
    /// From left to right: a brace that begins no placeholder is text.
    fn parse(text: &str) -> Self {
        let mut pieces = Vec::new();
        let mut plain = String::new();
        let mut rest = text;
        while let Some(letter) = rest.chars().next() {
            let found = Placeholder::ALL.into_iter().find_map(|placeholder| {
                let after = rest.strip_prefix(placeholder.written())?;
                Some((placeholder, after))
            });
            if let Some((placeholder, after)) = found {
                if !plain.is_empty() {
                    pieces.push(Piece::Text(std::mem::take(&mut plain)));
                }
                pieces.push(Piece::Place(placeholder));
                rest = after;
            } else {
                plain.push(letter);
                rest = rest.strip_prefix(letter).unwrap_or_default();
            }
        }
        if !plain.is_empty() {
            pieces.push(Piece::Text(plain));
        }
        Self(pieces)
    }

    fn holds(&self, placeholder: Placeholder) -> bool {
        self.0.contains(&Piece::Place(placeholder))
    }

    fn with(&self, values: &Values<'_>) -> String {
        self.0
            .iter()
            .map(|piece| match piece {
                Piece::Text(text) => text,
                Piece::Place(Placeholder::Prompt) => values.prompt,
                Piece::Place(Placeholder::Session) => values.session,
                Piece::Place(Placeholder::WorkFolder) => values.work_folder,
                // `parse_elements` and `parse_resume` leave none within an argument.
                Piece::Place(Placeholder::Resume) => "",
            })
            .collect()
    }
}

#[cfg(test)]
mod tests;
