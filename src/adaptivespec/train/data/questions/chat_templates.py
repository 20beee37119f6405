"""Templates of chat questions by family; `chat_slots` and `topics` fill them."""

from __future__ import annotations

FAMILIES: dict[str, tuple[str, ...]] = {
    "explain": (
        "[Did|Could] {idea} play a role in {history}?{len}",
        "[Design|Suggest|Outline] a simple [experiment|demonstration|model] that shows "
        "{science} with things from "
        "[a kitchen|a school lab|a garden].{len}",
        "In what way could {science} matter for [a {job}|{animals}|{tech}|everyday life]?{len}",
        "[List|Name] the steps of {science} in order, and say what would happen if one were "
        "left out.{len}",
        "A {job} has to understand {science}. What are the [three|four] things to know?{len}",
        "[Explain|Please explain|Describe] {subject}{size}.",
        "[Can you explain|Could you describe|Would you explain] {subject}{size}?",
        "[What goes on inside|What should I know about|Who needs] {tech}?{len}",
        "What [do we mean by|should everyone know about|do you know about] {subject}?{len}",
        "What is the [main idea|point] behind {subject}?{len}",
        "Why [should I care about|do people study|do we need to know about] {subject}?{len}",
        "[Tell me|I want to know] why {why}.{len}",
        "Why is it that {why}?{len}",
        "[Describe|Explain] the [causes|effects|history|importance] of {history}{size}.",
        "[What is known about the origins|What were the long-term effects|What are the key "
        "dates|Who were the main figures] of {history}?{len}",
        "How did {history} change [everyday life|trade|art|politics|science]?{len}",
        "[Give|Show] me [an analogy|a simple picture|an everyday example] for {subject}.{len}",
        "[What are|List] [three|four|five] [common misconceptions|facts] about {subject}[?|.]{len}",
        "What is the link between {subject#1} and {subject#2}?{len}",
        "I [have to|must] give a [two-minute|five-minute|short] talk on {subject}. What "
        "should I say?{len}",
        "Which [experiment|observation|everyday example] helps to understand {science}?{len}",
        "What questions about {subject} are still open?{len}",
        "[Write|Give] a definition of {subject} for [a dictionary|a school book|children].{len}",
        "How do {animals} [find food|raise their young|survive the winter|communicate|sleep]?{len}",
        "What makes the {animal} [special|different from other animals]?{len}",
    ),
    "compare": (
        "What is the difference between {pair}?{len}",
        "[Compare|Contrast] {pair}{size}.",
        "[Compare|Contrast] {pair} in terms of [cost|history|everyday use|how they "
        "work|advantages].{len}",
        "{^pair}: which would you [choose|recommend] for {audience}, and why?{len}",
        "[Make|Write] a table [that compares|comparing] {pair} with {3-5} rows.",
        "How are {country#1} and {country#2} [alike|different] in "
        "[climate|food|history|geography]?{len}",
        "Compare {subject#1} with {subject#2}.{len}",
        "Is a {animal#1} [faster|stronger|smarter|heavier] than a {animal#2}?{len}",
        "Would you rather be a {job#1} or a {job#2}? [Give|Name] [two|three] reasons.{len}",
        "What do {idea#1} and {idea#2} have in common?{len}",
    ),
    "advice": (
        "Give me [three|four|five|some] tips for {daily}.{len}",
        "What are [three|four|five|some] good tips for {daily}?{len}",
        "I want to {goal}. [Where do I start?|What should I do first?|What do you advise?]{len}",
        "I'd like to {goal}, but I [have little time|lose motivation quickly|don't have much "
        "money|am nervous]. "
        "[Any ideas?|What can I do?]{len}",
        "[Make|Write|Draw up] a [plan|{2-8}-week plan|daily schedule|checklist] for someone "
        "who wants to {goal}.{len}",
        "What [is|would be] the best way of {daily}?{len}",
        "What [mistakes|problems] should I avoid when {daily}?{len}",
        "My [neighbour|boss|flatmate|sister|friend] [never says thank you|is always "
        "late|talks too much|borrows my "
        "{t}|plays loud music|forgot my birthday]. How should I [react|bring it up]?{len}",
        "How do I [politely|kindly] tell a [colleague|friend|guest] that {news}?{len}",
        "What should I [wear|bring|say|prepare|cook] for {event}?{len}",
        "Plan [a birthday party|a picnic|a workshop|a street festival|an open day|a farewell "
        "lunch] for {6-60} people with a budget of ${1-20*100}.{len}",
        "Plan a {2-7}-day trip to [{city}|{country}] for [a family|two friends|a student|an "
        "art lover].{len}",
        "What are good gifts for a {job} who likes {daily}?{len}",
        "How can a {job} [save time|avoid stress|earn more|learn new skills]?{len}",
        "[Give me|Write] a recipe for {dish}[.| without milk.| for {2-8} people.| that takes "
        "{10-40} minutes.]{len}",
        "Can you write step-by-step instructions for {daily}?{len}",
        "What are the pros and cons of becoming a {job}?{len}",
    ),
    "write": (
        "Write a {mood} {made} about {theme}.{len}",
        "Write a {made} about {theme} [from the view of|in which we meet|for] {hero}.{len}",
        "[Tell|Write] [me|] a [short|bedtime|funny] story [about|with] {hero} and {theme}.{len}",
        "Write a [poem|limerick|haiku|rhyme] about [{theme}|{science}|a {job}|a {animal}]{len}",
        "Write a dialogue between {hero#1} and {hero#2} about {theme}.{len}",
        "[Continue|Finish] this story: '{^hero} found {theme}[, and nothing was the same "
        "again.|, but told nobody.|"
        " on a {day} morning.]'{len}",
        "[Write|Suggest] [three|five] titles for a [book|film|song] about {hero} and {theme}.",
        "[Describe|Paint in words] {theme} {mood_in}.{len}",
        "Write a product description for {gadget}.{len}",
        "Write [an advert|a slogan|three slogans|a radio spot] for {gadget} [aimed at "
        "{audience}|]{len}",
        "Write [a blog post|a newspaper article|an essay|an introduction] about {issue}.{len}",
        "Write [an outline|a table of contents] for a [book|talk|course|blog post] on "
        "[{subject}|{daily}].{len}",
        "Write a [{tone}|short {tone}] [email|letter|message] to [ask for {request}|say that "
        "{news}].{len}",
        "[Draft|Compose] an email to my [landlord|manager|team|teacher|{reader}]: {news}. "
        "The tone is {tone}.{len}",
        "Write an invitation to {event} [for|to be sent to] [all|our] {reader}.{len}",
        "Write a [speech|toast] for the [birthday|wedding|retirement|promotion|farewell "
        "party] of {p}, a {job}.{len}",
        "Write a [cover letter|short profile|reference] for {p}, a {job} with {2-20} years "
        "of experience.{len}",
        "Write a review of [{gadget}|a restaurant that serves {dish}|a film about {hero}]{len}",
        "[Write|Make up] a [riddle|joke|tongue twister|fable] about a {animal}[.| and a "
        "{job}.]{len}",
        "Write a [social media post|caption|thank-you card|postcard] about "
        "[{event}|{theme}|a trip to {city}]{len}",
        "Invent a [character|creature|planet|festival|game] that has to do with {theme}, and "
        "describe it{size}.",
        "Write the [first|last] paragraph of a {mood} novel about {hero}.{len}",
    ),
    "role": (
        "You are {role}. [Answer in character:|A guest asks:|Somebody asks you:] {asked}{len}",
        "[Act as|Pretend to be|Play the part of] {role}. [My first question:|I ask you:] "
        "{asked}{len}",
        "[Act as|Play] {role} and [tell me about|explain|describe|complain about] "
        "[{theme}|{tech}|{city}|{daily}].{len}",
        "[Imagine you are|Speak as] {role}. [What is your day like?|What do you fear "
        "most?|Introduce yourself.|"
        "Tell us about {theme}.]{len}",
        "As {role}, write a [letter|diary entry|speech|warning] about [{theme}|{issue}].{len}",
        "You are {role} and I am {hero}. [Greet me|Start our conversation|Give me some "
        "advice] [politely|warmly|"
        "in your own way].{len}",
        "Interview {role} about {issue}: write {3-5} questions and answers.",
        "You are a [helpful|strict|cheerful|very brief] assistant for [a {job}|the {reader} "
        "of a small [shop|hotel|school|library]]. [The user says:|"
        "Reply to this:] {news_said}{len}",
    ),
    "opinion": (
        "[Write|Sketch] a debate between a {job#1} and a {job#2} about {issue}.{len}",
        "Rank {daily#1}, {daily#2} and {daily#3} by [difficulty|usefulness|cost] and "
        "[explain|justify] the order.{len}",
        "Some say that {idea#1} matters more than {idea#2}. [Discuss.|Do you agree?|Give "
        "both sides.]{len}",
        "How would a philosopher and a {job} disagree about {idea}?{len}",
        "What do you think about {issue}?{len}",
        "Are you for or against {issue}?{len}",
        "[Give|List] [two|three] arguments for and [two|three] against {issue}.{len}",
        "Write a [persuasive paragraph|short speech|debate opening] [for|against] {issue}.{len}",
        "[Will|In your opinion, will] {issue} [matter more|matter less|disappear] in {10-50} "
        "years?{len}",
        "What would [a {job}|{hero}|{role}] say about {issue}?{len}",
        "What does the saying '{proverb}' mean?{len}",
        "[When|In which situation] is the saying '{proverb}' wrong?{len}",
        "What would happen if {counter}?{len}",
        "Imagine that {counter}. [Describe an ordinary day.|Who would profit most?|What "
        "would change first?]{len}",
        "What can {idea} teach us about {issue}?{len}",
        "Can there be {idea#1} without {idea#2}?{len}",
        "How [did|might|could] {tech} change [friendship|school|work|the life of a "
        "{job}|travel]?{len}",
    ),
    "reason": (
        "{p} is taller than {q}, and {q} is taller than {r}. Who is the [shortest|tallest]? "
        "Explain.",
        "{p}, {q} and {r} own a {animal#1}, a {animal#2} and a {animal#3}, in some order. "
        "{p} does not own the "
        "{animal#1}. {q} owns the {animal#2}. Who owns which animal?",
        "If all {animals#1} like {s} and {p} is one of the {animals#1}, does {p} like {s}? "
        "[Why?|Explain.]",
        "Some of the {s} are {u}. All {u} are blue. What can we say about the {s}?{len}",
        "What do [a few things like these|these words] have in common: {w1}, {w2}, {w3}? "
        "Would '{odd}' [fit|go] with them?",
        "Today is {day}. Which day will it be in {4-100} days?[| Show your steps.]",
        "{p} starts at home, walks {2-9} blocks north, {2-9} blocks east and {2-9} blocks "
        "south. [Where is {p.he} "
        "now?|How far from home is {p.he}?] Explain.",
        "In a race {p} finished before {q}, and {r} finished after {q}. In which order did they "
        "arrive?{len}",
        "{p} says that {q} broke the vase. {q} says that {r} did it. Only one of them tells "
        "the truth. "
        "What can we conclude?",
        "Sort these by size, from small to large: a {animal#1}, a {animal#2}, a {animal#3}. "
        "[Explain.|]",
        "Complete the analogy: {job} is to [work|tools] as {animal} is to ...? [Give two "
        "options.|Explain.]",
        "I have {2-9} {s}. I give all but {1-2} away. How many [do I have|are left]?",
        "{p} left {city#1} at {6-11} o'clock and reached {city#2} {3-9} hours later. The "
        "clocks in {city#2} are "
        "{1-6} hours ahead. What time was it there?",
        "Give [three|two] possible reasons why {news}.{len}",
        "What is wrong with this argument: 'Every {job} I know likes {dish}, so everybody "
        "does'?{len}",
        "What comes next: [{1-5}, {6-9}, {10-14}|Monday, Wednesday, Friday|A, C, E, G|2, 6, "
        "18, 54]? Explain.",
    ),
    "passage": (
        "Reply to this message in a {tone} tone: 'Hello, I need {request}. I also heard that "
        "{news}. [Please answer soon.|"
        "Can you help?|Kind regards, {p}]'{wlen}",
        "Which category fits: [travel, science, business or family|news, story, advert or "
        "minutes]? [Explain.|One word.]"
        "\n\n<passage>",
        "[Sort|Group] the following notes by [topic|urgency] and [turn them into a "
        "plan|write one sentence on each]: "
        "{request#1}; {news}; {request#2}; {daily}; {event}.",
        "[Compare|Contrast] these two texts{size}.\n\nA: <short>\n\nB: <passage>",
        "[Label|Mark] each customer comment as praise, complaint or mixed[.| and say why.| "
        "in a table.]\n1. "
        "{^gadget#1} broke after {2-9} days.\n"
        "2. I use {gadget#2} every {day} and love it.\n3. {^gadget#3} does what it should, "
        "but it is not cheap.",
        "[Summarise|Summarize] [this|the following] [text|passage]{size}.\n\n<passage>",
        "<passage>\n\n[What is the main point of this text?|Give this text a "
        "title.|Summarise the above{size}.]",
        "[Rewrite|Rephrase] [this|the following] [text|paragraph] in a {tone} tone.\n\n<passage>",
        "[Rewrite|Retell] [this|the text below] [as a {made}|for {audience}|in the present "
        "tense|as a news headline].\n\n"
        "<passage>",
        "[Read the text and answer|Answer] the question[.|:]\n\n<passage>\n\nQuestion: [Who "
        "is mentioned?|When does this "
        "happen?|What is the problem?|What numbers appear, and what do they mean?|Where does "
        "it take place?|What "
        "might happen next?]",
        "[Extract|List] all [names|numbers|places|dates and days] from [this|the following] "
        "text[.| as a list.]"
        "\n\n<passage>",
        "[Turn|Change] [this|the following] text into [bullet points|a table|questions and "
        "answers|a dialogue|an "
        "email].\n\n<passage>",
        "[Translate|Put] [this|the following text] into {language}.\n\n<short>",
        "[Correct|Fix] the [spelling and grammar|mistakes] in this text[.| and list what you "
        "changed.]\n\n<wrong>",
        "[Proofread|Improve]: <wrong>",
        "Shorten this to [one sentence|half its length|ten words].\n\n<passage>",
        "[Make|Write] [two|three|four] [quiz|multiple choice|comprehension] questions on "
        "this text.\n\n<passage>",
        "What is the [mood|tone|purpose] of this text? [Quote one "
        "phrase.|Explain{size}.|]\n\n<passage>",
        "[Continue|Finish] this text with [one more sentence|two more sentences|three more "
        "sentences].\n\n<passage>",
        "Which of these statements are facts and which are opinions?\n\n<passage>",
    ),
    "language": (
        "Translate '{phrase}' into {language}.",
        "How do you say '{phrase}' in {language}?",
        "[Translate|Put] into {language}: {phrase#1} {phrase#2}",
        "[Write|Give me] [three|five] [ways of saying|synonyms for] '{word}'[.| with an "
        "example each.]",
        "[Use|Put] the words '{word#1}', '{word#2}' and '{word#3}' [in one sentence|in a "
        "short story|in a poem].",
        "What does '{word}' mean, and where does the word come from?{len}",
        "Rewrite this in a {tone} way: {phrase}",
        "[Give|Write] [three|four] example sentences with the word '{word}'.",
        "What rhymes with '{word}'? [List|Name] {3-8} words.",
        "Teach me [three|five] phrases in {language} for [{event}|a trip to {country}|a "
        "first meeting].{len}",
    ),
    "quiz": (
        "[Write|Make] a quiz [on|about] {subject} with {3-8} questions[.| and answers.| with "
        "four choices each.]",
        "[Ask|Quiz] me [one question|three questions] [on|about] [{subject}|{country}].",
        "[Write|Make] a {3-10}-day [lesson plan|study plan] on {subject} for {audience}.{len}",
        "Design a [classroom activity|game|experiment|project] about {subject} for "
        "[children|teenagers|adults].{len}",
        "[Suggest|List] [three|five|six] [books|films|websites|museums|questions] on "
        "{subject}.{len}",
        "[Make|Write] [flash cards|a glossary|a timeline|a mnemonic] for {subject}.{len}",
        "[Write|Prepare] {3-8} interview questions for a {job}.{len}",
        "[Name|List] [five|seven|ten] [jobs|things|ideas|words] that have to do with "
        "[{subject}|{daily}].",
        "What is the capital of {country}? [And what is it known for?|Name two sights "
        "there.|]{len}",
        "[Name|Describe] [three|four] [sights|dishes|customs] of {country}.{len}",
    ),
    "talk": (
        "{greeting} I am a {job} and I am [bored|curious about {subject}|a little sad "
        "today|new here|tired]. "
        "[Can we talk?|Tell me something nice.|What do you suggest?|Cheer me up.]",
        "{greeting} can you help me with {daily}?{len}",
        "{greeting} what can you tell me about [{subject}|{city}|{country}|{animals}]?{len}",
        "I just [came back from {event}|finished {daily}|read about {subject}]. [Ask me a "
        "question about it.|What now?|"
        "What should I know?]{len}",
        "Do you [like|know] {dish}? [What goes well with it?|Tell me how it is made.|Where "
        "is it from?]{len}",
        "Tell me [a fun fact|something surprising|a short anecdote] about "
        "[{subject}|{animals}|{country}|{city}].{len}",
        "Help me decide: {daily#1} or {daily#2} this [weekend|evening]?{len}",
        "[Recommend|Suggest] [a hobby|a book|a film|an activity] for someone who likes "
        "{daily} and {subject}.{len}",
    ),
}
