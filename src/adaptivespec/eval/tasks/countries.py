"""Countries with their capitals; those with several seats or a disputed one are left out.

Each line: country; capital; other spellings of the capital.
"""

from __future__ import annotations

__all__ = ["CAPITALS"]

_TABLE = """
Afghanistan; Kabul
Albania; Tirana
Algeria; Algiers; Alger
Angola; Luanda
Argentina; Buenos Aires
Armenia; Yerevan
Australia; Canberra
Austria; Vienna; Wien
Azerbaijan; Baku
the Bahamas; Nassau
Bahrain; Manama
Bangladesh; Dhaka; Dacca
Belarus; Minsk
Belgium; Brussels; Bruxelles
Bosnia and Herzegovina; Sarajevo
Brazil; Brasilia
Bulgaria; Sofia
Cambodia; Phnom Penh
Canada; Ottawa
China; Beijing; Peking
Colombia; Bogota
Costa Rica; San Jose
Croatia; Zagreb
Cuba; Havana; La Habana
Cyprus; Nicosia
the Czech Republic; Prague; Praha
Denmark; Copenhagen
the Dominican Republic; Santo Domingo
Ecuador; Quito
Egypt; Cairo
El Salvador; San Salvador
Estonia; Tallinn
Ethiopia; Addis Ababa
Fiji; Suva
Finland; Helsinki
France; Paris
Georgia; Tbilisi
Germany; Berlin
Ghana; Accra
Greece; Athens
Haiti; Port-au-Prince; Port au Prince
Hungary; Budapest
Iceland; Reykjavik
India; New Delhi; Delhi
Iran; Tehran; Teheran
Iraq; Baghdad
Ireland; Dublin
Italy; Rome; Roma
Jamaica; Kingston
Japan; Tokyo
Jordan; Amman
Kazakhstan; Astana; Nur-Sultan
Kenya; Nairobi
Laos; Vientiane
Latvia; Riga
Lebanon; Beirut
Liberia; Monrovia
Libya; Tripoli
Lithuania; Vilnius
Madagascar; Antananarivo
Malaysia; Kuala Lumpur
Mali; Bamako
Malta; Valletta
Mexico; Mexico City; Ciudad de Mexico
Mongolia; Ulaanbaatar; Ulan Bator
Montenegro; Podgorica
Morocco; Rabat
Mozambique; Maputo
Nepal; Kathmandu; Katmandu
the Netherlands; Amsterdam
New Zealand; Wellington
Nicaragua; Managua
Nigeria; Abuja
North Korea; Pyongyang
North Macedonia; Skopje
Norway; Oslo
Oman; Muscat
Pakistan; Islamabad
Paraguay; Asuncion
Peru; Lima
the Philippines; Manila
Poland; Warsaw; Warszawa
Portugal; Lisbon; Lisboa
Qatar; Doha
Romania; Bucharest; Bucuresti
Russia; Moscow
Rwanda; Kigali
Saudi Arabia; Riyadh
Senegal; Dakar
Serbia; Belgrade; Beograd
Sierra Leone; Freetown
Slovakia; Bratislava
Slovenia; Ljubljana
Somalia; Mogadishu
South Korea; Seoul
Spain; Madrid
Sudan; Khartoum
Sweden; Stockholm
Switzerland; Bern; Berne
Syria; Damascus
Thailand; Bangkok
Tunisia; Tunis
Turkey; Ankara
Uganda; Kampala
Ukraine; Kyiv; Kiev
the United Arab Emirates; Abu Dhabi
the United Kingdom; London
the United States; Washington, D.C.; Washington DC; Washington D.C; Washington
Uruguay; Montevideo
Uzbekistan; Tashkent
Venezuela; Caracas
Vietnam; Hanoi; Ha Noi
Yemen; Sanaa; Sana'a
Zambia; Lusaka
Zimbabwe; Harare
"""

CAPITALS: tuple[tuple[str, tuple[str, ...]], ...] = tuple(
    (country, tuple(names))
    for country, *names in (line.split("; ") for line in _TABLE.strip().splitlines())
)
"""(country, (capital, other spellings...)); accents are left out."""
